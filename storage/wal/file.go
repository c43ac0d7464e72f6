package wal

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/trivium-mq/trivium/storage/vfs"
)

const fileSuffix = ".wal"

func fileName(dir string, seq uint64) string {
	return path.Join(dir, fmt.Sprintf("%016x%s", seq, fileSuffix))
}

// parseFileName returns the sequence number; ok is false for other files.
func parseFileName(name string) (seq uint64, ok bool) {
	hex, found := strings.CutSuffix(name, fileSuffix)
	if !found || len(hex) != 16 {
		return 0, false
	}
	seq, err := strconv.ParseUint(hex, 16, 64)
	return seq, err == nil && seq > 0
}

// file is one file of the log. Only the writer changes end, durable and limit.
type file struct {
	vfs.File
	name string
	seq  uint64
	salt uint32

	end     int64 // where the next frame goes
	durable int64 // everything before it is synced
	limit   int64 // reserved size

	live      atomic.Int64 // entries that some group still has here
	liveBytes atomic.Int64
	refs      atomic.Int64 // readers, plus one while the log owns the file
}

// createFile makes a file that is durable with its header and reserved space.
// A full disk shows here, before anything is written to the log.
func createFile(fs vfs.FS, dir string, seq uint64, size int64, salt uint32) (*file, error) {
	name := fileName(dir, seq)
	f, err := fs.Create(name)
	if err != nil {
		return nil, fmt.Errorf("wal: new file: %w", err)
	}
	err = f.Preallocate(size)
	if err == nil {
		_, err = f.WriteAt(putFileHeader(seq, salt), 0)
	}
	if err == nil {
		err = syncFile(f)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		// What remains of it holds nothing; recovery would remove it, too.
		_ = f.Close()
		_ = fs.Remove(name)
		return nil, fmt.Errorf("wal: new file %s: %w", name, err)
	}
	out := &file{File: f, name: name, seq: seq, salt: salt,
		end: fileHeaderSize, durable: fileHeaderSize, limit: size}
	out.refs.Store(1)
	return out, nil
}

// openFile opens an existing file. blank is true when creation was interrupted
// before the header got durable: such a file holds nothing.
func openFile(fs vfs.FS, dir string, seq uint64) (f *file, blank bool, err error) {
	name := fileName(dir, seq)
	h, err := fs.OpenFile(name)
	if err != nil {
		return nil, false, fmt.Errorf("wal: %w", err)
	}
	defer func() {
		if f == nil {
			_ = h.Close()
		}
	}()
	size, err := h.Size()
	if err != nil {
		return nil, false, fmt.Errorf("wal: %s: %w", name, err)
	}
	if size > maxFileSize {
		return nil, false, corrupt(name, maxFileSize, "file too large")
	}
	head := make([]byte, fileHeaderSize)
	if _, err := h.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("wal: %s: %w", name, err)
	}
	salt, err := getFileHeader(head, seq)
	if errors.Is(err, errVersion) {
		return nil, false, fmt.Errorf("wal: %s: %w %d", name, ErrVersion, head[4])
	}
	if err != nil {
		zero, zerr := isZero(h, 0, size)
		if zerr != nil {
			return nil, false, fmt.Errorf("wal: %s: %w", name, zerr)
		}
		if zero {
			return nil, true, nil
		}
		return nil, false, corrupt(name, 0, err.Error())
	}
	f = &file{File: h, name: name, seq: seq, salt: salt, limit: size}
	f.refs.Store(1)
	return f, false, nil
}

func corrupt(name string, off int64, what string) error {
	return fmt.Errorf("%w: %s at offset %d: %s", ErrCorrupt, name, off, what)
}

// isZero reports whether [from, to) is all zeros.
func isZero(f vfs.File, from, to int64) (bool, error) {
	buf := make([]byte, min(scanWindow, max(0, to-from)))
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
		if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		from += int64(len(b))
		for ; len(b) > 0; b = b[min(len(b), frameAlign):] {
			if !isZeroWord(b[:min(len(b), frameAlign)]) {
				return false, nil
			}
		}
	}
	return true, nil
}

// hold adds or removes an entry of the given frame size.
func (f *file) hold(n int64, bytes int64) {
	f.live.Add(n)
	f.liveBytes.Add(n * bytes)
}

// release gives up a reference and closes the file with the last one.
func (f *file) release() error {
	if f.refs.Add(-1) == 0 {
		return f.Close()
	}
	return nil
}

// read reads and checks one frame, whose place and size are known.
func (f *file) read(off int64, size int64) (h frame, data, ext []byte, err error) {
	buf := make([]byte, size)
	if _, err := f.ReadAt(buf, off); err != nil {
		return h, nil, nil, fmt.Errorf("wal: %s: %w", f.name, err)
	}
	h, ok := getFrame(buf, f.salt)
	if !ok || h.size() != size {
		return h, nil, nil, corrupt(f.name, off, "frame header")
	}
	end := frameHeaderSize + int(h.length)
	data = buf[frameHeaderSize:end:end]
	if h.ext > 0 {
		ext = buf[end : end+int(h.ext) : end+int(h.ext)]
	}
	if dataSum(data, ext) != h.dataSum {
		return h, nil, nil, corrupt(f.name, off, "checksum of the data")
	}
	return h, data, ext, nil
}
