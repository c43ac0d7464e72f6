package vfs

import (
	"errors"
	"path"
)

// ReplaceFile writes a small file as a whole: after a crash there is the former one, or
// the new one. Its content is synced before it takes its name, and the directory after.
func ReplaceFile(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(name+".tmp", name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
