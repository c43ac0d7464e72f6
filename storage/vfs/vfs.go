// Package vfs is the file system as the storage layer sees it.
//
// Three implementations share one interface: [OS] is the real disk, [MemFS]
// lives in memory and can say what a power loss would have left of it, and
// [Fault] wraps either and makes chosen operations fail.
//
// The rules are POSIX's, made strict: written bytes are durable after
// [File.Sync], a created, renamed or removed name is durable after
// [FS.SyncDir] of its directory. Code that relies on less is wrong, and
// [MemFS.CrashClone] shows it.
package vfs

import (
	"errors"
	"io"
)

var (
	// ErrLocked is returned by [FS.Lock] when somebody else holds the lock.
	ErrLocked = errors.New("vfs: locked by another process")

	// ErrNoSpace matches every error that means "the disk is full", whatever
	// implementation it comes from.
	ErrNoSpace = errors.New("vfs: no space left on device")

	// ErrNoFiles matches every error that means "no more files can be open": of
	// the process or of the machine. Nothing was done.
	ErrNoFiles = errors.New("vfs: too many open files")

	// ErrClosed is returned by operations on a closed file.
	ErrClosed = errors.New("vfs: file is closed")
)

// FS is a file system. Names are slash-separated paths. A missing file is
// reported as an error matching [io/fs.ErrNotExist], a full disk as one
// matching [ErrNoSpace]. All methods may be called concurrently.
type FS interface {
	// Create makes a new empty file, or empties the one that is there, and
	// opens it for reading and writing.
	Create(name string) (File, error)

	// Open opens an existing file for reading only.
	Open(name string) (File, error)

	// OpenFile opens an existing file for reading and writing.
	OpenFile(name string) (File, error)

	// Remove deletes a file or an empty directory.
	Remove(name string) error

	// Rename gives a file another name, replacing what had that name.
	Rename(from, to string) error

	// MkdirAll makes a directory and its missing parents. They are durable
	// when it returns.
	MkdirAll(dir string) error

	// List returns the base names of the entries of dir, sorted.
	List(dir string) ([]string, error)

	// Size returns the size of a file in bytes.
	Size(name string) (int64, error)

	// Free returns how many bytes this process can still allocate on the volume
	// of dir, math.MaxInt64 if nobody knows.
	Free(dir string) (int64, error)

	// Capacity returns how many bytes the volume of dir has, used or not,
	// math.MaxInt64 if nobody knows.
	Capacity(dir string) (int64, error)

	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error

	// Lock takes an exclusive lock bound to name, creating that file if need
	// be, without waiting: ErrLocked means that it is taken. Close releases it.
	Lock(name string) (io.Closer, error)
}

// File is an open file without a position: every read and write names its
// offset. Reads and writes may run concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt

	// WritevAt writes bufs one after the other beginning at off, in as few
	// system calls as possible. It keeps no reference to bufs after it returns.
	// Like io.WriterAt it returns an error when it wrote less than all.
	WritevAt(bufs [][]byte, off int64) (int, error)

	// Sync makes the content and the size durable (fdatasync). An error is
	// final: the kernel may have dropped the pages, a later Sync that returns
	// nil proves nothing about them.
	Sync() error

	// Truncate cuts or extends (with zeros) the file.
	Truncate(size int64) error

	// Preallocate makes the file at least size bytes long and reserves the disk
	// space, so that writes below size cannot fail for lack of it. New bytes
	// read as zero.
	Preallocate(size int64) error

	// Size returns the present size in bytes.
	Size() (int64, error)

	// Close closes the file. It does not sync.
	Close() error
}
