// Package wal is the node's write-ahead log: one sequence of files that holds
// the log entries, terms and votes of every Raft group of the node.
//
// There is no writer goroutine. Whoever appends first while nobody writes
// becomes the writer and takes along what others queue meanwhile; one pwritev
// and one fdatasync then serve all of them. A test that appends from one
// goroutine therefore meets no other one, and the same calls give the same
// bytes.
//
// A failed write or sync is final: the kernel may have dropped the pages, so
// every later append fails with [ErrFailed], and the process should stop. A
// full disk is not such a failure: space is reserved file by file, ahead of the
// writes; when that is impossible, the append fails with an error matching
// vfs.ErrNoSpace before anything is written. So does it, with vfs.ErrNoFiles,
// when the next file cannot be opened for lack of file descriptors.
package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

var (
	// ErrFailed is returned by everything that writes, after a write or sync
	// has failed. It is final.
	ErrFailed = errors.New("wal: failed")

	// ErrCorrupt says that a place in the log is damaged that had been good
	// once. The message names file and offset.
	ErrCorrupt = errors.New("wal: damaged")

	// ErrMissing says that there is no log where there must be one.
	ErrMissing = errors.New("wal: the log is missing")

	// ErrVersion is returned for files of an unknown format version.
	ErrVersion = errors.New("wal: unsupported format version")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("wal: closed")
)

// Options are the settings of a log. The zero value is good.
type Options struct {
	// MustExist makes Open fail with ErrMissing instead of making a log where
	// there is none: the owner knows that there has been one.
	MustExist bool

	// FileSize is the reserved size of a file in bytes; default 64 MiB. A round
	// larger than that gets a file of its own size.
	FileSize int64

	// MaxSyncBytes bounds the bytes that are written before a sync, except
	// that one append is never divided; default 8 MiB.
	MaxSyncBytes int64

	// TailCacheBytes bounds, per group, the newest entries that are kept in
	// memory for replication; default 8 MiB.
	TailCacheBytes int64

	// NoAhead makes new files be created when they are needed, instead of by a
	// goroutine beforehand. For deterministic tests.
	NoAhead bool

	// SkipSync returns from an append of entries before they are on the disk:
	// the setting durability = "os". A power loss then loses acknowledged
	// entries, but never leaves a hole.
	SkipSync bool

	// Rand gives the salts of files; default crypto/rand.
	Rand io.Reader

	// Now is used to time syncs; default time.Now.
	Now func() time.Time

	// SlowWrite is how long a round of writing takes, with its sync, that is slow (WAL.Slow);
	// default 1 s.
	SlowWrite time.Duration

	// OnFailure is called once, with the error that makes the log fail, before
	// the append that met it returns.
	OnFailure func(error)

	// firstSeq is the number of the first file of a new log; default 1.
	firstSeq uint64
}

const (
	minFileSize = 4 << 10

	// maxReserve bounds what reserve returns.
	maxReserve = 64 << 10
)

// reserve is the room at the end of a file that entries leave to frames which
// must get through on a full disk: votes, and the cuts that give space back.
func (o *Options) reserve() int64 { return min(o.FileSize/16, maxReserve) }

func (o Options) withDefaults() Options {
	if o.FileSize == 0 {
		o.FileSize = 64 << 20
	}
	o.FileSize = min(max(o.FileSize, minFileSize), maxFileSize)
	if o.SlowWrite == 0 {
		o.SlowWrite = time.Second
	}
	if o.MaxSyncBytes == 0 {
		o.MaxSyncBytes = 8 << 20
	}
	o.MaxSyncBytes = min(o.MaxSyncBytes, maxAppend)
	if o.TailCacheBytes == 0 {
		o.TailCacheBytes = 8 << 20
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// WAL is the log of a node. All methods may be called concurrently.
type WAL struct {
	fs   vfs.FS
	dir  string
	opts Options
	lock io.Closer
	// requests are those not in use. Each log has its own: a channel of one does not get
	// out of the bubble of a test (testing/synctest) by way of another.
	requests sync.Pool

	mu     sync.Mutex
	idle   sync.Cond // signalled when busy ends
	groups map[uint32]*Group
	queue  []*request
	busy   bool // somebody is the writer
	closed bool
	failed error
	files  []*file // oldest first; the last one is written to

	reclaiming sync.Mutex // held by the one that removes files
	dirDirty   bool       // a removal is not yet durable; under reclaiming

	// Owned by the writer.
	cur    *file // the one that is written to
	round  round
	spare  chan spareFile // cap 1: the file that is being made ahead
	making bool
	ahead  sync.WaitGroup

	cramped atomic.Pointer[error] // why the next file could not be made; nil: it could, or is not due

	recovery Recovery
	syncs    atomic.Int64
	syncTime atomic.Int64
	appended atomic.Int64
	pace     pace
}

// Recovery tells what Open found.
type Recovery struct {
	Files    int
	Entries  int
	TornFile string // where an unfinished write was cut off; "" = none
	TornAt   int64
}

// Stats are counters since Open.
type Stats struct {
	Syncs         int64
	SyncTime      time.Duration // spent in syncs, in all
	AppendedBytes int64
	Files         int
	FileBytes     int64 // reserved on the disk by the files
}

// Open opens the log in dir, makes it if there is none, and recovers it. A
// write that a crash interrupted is cut off; damage anywhere else is an error
// matching ErrCorrupt. When it returns, everything it found is durable.
func Open(fs vfs.FS, dir string, opts Options) (*WAL, error) {
	if err := fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	lock, err := fs.Lock(path.Join(dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	w := &WAL{
		fs: fs, dir: dir, opts: opts.withDefaults(), lock: lock,
		groups: map[uint32]*Group{},
		spare:  make(chan spareFile, 1),
	}
	w.idle.L = &w.mu
	w.pace.opened = w.opts.Now()
	if err := w.recover(); err != nil {
		w.closeFiles()
		return nil, errors.Join(err, lock.Close())
	}
	return w, nil
}

// Group returns the log of one Raft group. A new one is empty; nothing is
// written for it before its first append.
func (w *WAL) Group(id uint32) *Group {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.group(id)
}

func (w *WAL) group(id uint32) *Group {
	g := w.groups[id]
	if g == nil {
		g = &Group{w: w, id: id, kv: map[string][]byte{}}
		w.groups[id] = g
	}
	return g
}

// Groups returns the ids of the groups that have ever been asked for or were
// found on the disk, in ascending order.
func (w *WAL) Groups() []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.groups))
}

// Recovery tells what Open found.
func (w *WAL) Recovery() Recovery { return w.recovery }

// Err returns the error that has made the log fail, or nil.
func (w *WAL) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Stats returns the counters.
func (w *WAL) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{
		Syncs:         w.syncs.Load(),
		SyncTime:      time.Duration(w.syncTime.Load()),
		AppendedBytes: w.appended.Load(),
		Files:         len(w.files),
	}
	for _, f := range w.files {
		s.FileBytes += f.limit
	}
	return s
}

// Close waits for the append that is on its way, syncs, and closes the files.
// Appends that are still queued return ErrClosed.
func (w *WAL) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.closed = true
	for w.busy {
		w.idle.Wait()
	}
	failed := w.failed
	w.mu.Unlock()

	w.reclaiming.Lock() // waits for whoever removes files
	defer w.reclaiming.Unlock()
	w.ahead.Wait()
	var err error
	if w.making {
		// It stays on the disk, empty; the next Open removes it.
		if s := <-w.spare; s.file != nil {
			err = s.file.release()
		}
	}
	if failed == nil {
		if serr := syncFile(w.cur); serr != nil {
			err = errors.Join(err, fmt.Errorf("wal: close: %w", serr))
		}
	}
	return errors.Join(err, w.closeFiles(), w.lock.Close())
}

func (w *WAL) closeFiles() error {
	var err error
	for _, f := range w.files {
		err = errors.Join(err, f.release())
	}
	return err
}

// salt draws the salt of a new file.
func (w *WAL) salt() (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(w.opts.Rand, b[:]); err != nil {
		return 0, fmt.Errorf("wal: salt: %w", err)
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}
