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
	if err := fsys.Remove(path.Join(dir, bookName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cluster: %s: %w", bookName, err)
	}
	return fsys.SyncDir(dir)
}
