package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Forget removes what the data directory of a node that does not run knows of others.
func Forget(fsys vfs.FS, dir string) error {
	for _, name := range []string{bookName, "promises.json"} {
		if err := fsys.Remove(path.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cluster: %s: %w", name, err)
		}
	}
	return fsys.SyncDir(dir)
}
