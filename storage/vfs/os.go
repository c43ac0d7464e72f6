package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// OS returns the file system of the operating system; in builds with the tag
// faults, behind [Injected].
func OS() FS { return injected(osFS{}) }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func (osFS) OpenFile(name string) (File, error) { return openOS(name, os.O_RDWR) }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o640)
	if err != nil {
		return nil, osError(err)
	}
	return &osFile{f: f}, nil
}

func (osFS) Remove(name string) error { return osError(os.Remove(name)) }

func (osFS) Rename(from, to string) error { return osError(os.Rename(from, to)) }

// MkdirAll syncs the parent of every directory it makes.
func (fs osFS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("vfs: %s is not a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := fs.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return osError(err)
	}
	return fs.SyncDir(parent)
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, osError(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Size(name string) (int64, error) {
	st, err := os.Stat(name)
	if err != nil {
		return 0, osError(err)
	}
	return st.Size(), nil
}

func (osFS) Free(dir string) (int64, error) {
	free, _, err := volume(dir)
	if err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return free, nil
}

func (osFS) Capacity(dir string) (int64, error) {
	_, size, err := volume(dir)
	if err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return size, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return osError(err)
	}
	err = d.Sync()
	return osError(errors.Join(err, d.Close()))
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, osError(err)
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

type osFile struct {
	f      *os.File
	closed atomic.Bool
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, osError(err)
}

func (o *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	n, err := writevAt(o.f, bufs, off)
	return n, osError(err)
}

func (o *osFile) Sync() error { return osError(datasync(o.f)) }

func (o *osFile) Truncate(size int64) error { return osError(o.f.Truncate(size)) }

func (o *osFile) Preallocate(size int64) error { return osError(preallocate(o.f, size)) }

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, osError(err)
	}
	return st.Size(), nil
}

func (o *osFile) Close() error {
	if o.closed.Swap(true) {
		return ErrClosed
	}
	return osError(o.f.Close())
}

// osError makes "disk full" and "quota exceeded" match ErrNoSpace, and a lack
// of file descriptors ErrNoFiles.
func osError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("%w: %w", ErrNoFiles, err)
	}
	return err
}
