package broker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// report writes what is lost beside what is kept.
func (r *recovery) report(found []Finding) error {
	var text strings.Builder
	fmt.Fprintf(&text, "trivium recover, %s\n", r.now.UTC().Format(time.RFC3339))
	for _, f := range found {
		fmt.Fprintf(&text, "\n%s\n  damage: %s\n  lost:   %s\n", f.File, f.What, orNothing(f.Lost))
	}
	f, err := r.fs.Create(path.Join(r.out.Aside, "report.txt"))
	if err != nil {
		return err
	}
	if _, err = f.WriteAt([]byte(text.String()), 0); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), r.fs.SyncDir(r.out.Aside))
}

func orNothing(lost string) string {
	if lost == "" {
		return "nothing"
	}
	return lost
}

// copyDir copies the files of a directory; one that is missing is none.
func copyDir(fsys vfs.FS, from, to string) error {
	if err := fsys.MkdirAll(to); err != nil {
		return err
	}
	names, err := fsys.List(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.EqualFold(name, "lock") {
			continue
		}
		if err := copyFile(fsys, path.Join(from, name), path.Join(to, name)); err != nil {
			return err
		}
	}
	return fsys.SyncDir(to)
}

func copyFile(fsys vfs.FS, from, to string) error {
	src, err := fsys.Open(from)
	if err != nil {
		return err
	}
	size, err := src.Size()
	if err != nil {
		return errors.Join(err, src.Close())
	}
	dst, err := fsys.Create(to)
	if err != nil {
		return errors.Join(err, src.Close())
	}
	_, err = io.Copy(io.NewOffsetWriter(dst, 0), io.NewSectionReader(src, 0, size))
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close(), src.Close())
}

// removeAll removes a directory with what is in it.
func removeAll(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		full := path.Join(dir, name)
		if _, err := fsys.List(full); err == nil {
			if err := removeAll(fsys, full); err != nil {
				return err
			}
			continue
		}
		if err := fsys.Remove(full); err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// moveTree moves a directory with what is in it, file by file: what is there already
// stays. One that is missing is none.
func moveTree(fsys vfs.FS, from, to string) error {
	names, err := fsys.List(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = fsys.MkdirAll(to)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		old, now := path.Join(from, name), path.Join(to, name)
		move := fsys.Rename
		if _, err := fsys.List(old); err == nil {
			move = func(from, to string) error { return moveTree(fsys, from, to) }
		}
		if err := move(old, now); err != nil {
			return err
		}
	}
	if err := errors.Join(fsys.SyncDir(to), fsys.SyncDir(from)); err != nil {
		return err
	}
	return fsys.Remove(from)
}
