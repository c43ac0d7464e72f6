package vfs

import (
	"errors"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// maxIovecs is the kernel's IOV_MAX.
const maxIovecs = 1024

// writevAt is pwritev with the loop around it that short writes, signals and
// IOV_MAX call for.
func writevAt(f *os.File, bufs [][]byte, off int64) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	total := 0
	var werr error
	err = conn.Write(func(fd uintptr) bool {
		total, werr = pwritevAll(int(fd), bufs, off)
		return true
	})
	if err != nil {
		return total, err
	}
	if werr != nil {
		return total, &os.PathError{Op: "pwritev", Path: f.Name(), Err: werr}
	}
	return total, nil
}

func pwritevAll(fd int, bufs [][]byte, off int64) (int, error) {
	total := 0
	skip := 0 // bytes of bufs[0] that are written already
	for {
		for len(bufs) > 0 && len(bufs[0]) == skip {
			bufs, skip = bufs[1:], 0
		}
		if len(bufs) == 0 {
			return total, nil
		}
		n, err := pwritevOnce(fd, bufs, skip, off+int64(total))
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return total, err
		}
		if n == 0 {
			return total, io.ErrShortWrite
		}
		total += n
		for n > 0 {
			rest := len(bufs[0]) - skip
			if n < rest {
				skip += n
				break
			}
			n -= rest
			bufs, skip = bufs[1:], 0
		}
	}
}

// pwritevOnce leaves the caller's slice headers alone: after a short write the
// rest of the first buffer goes out by itself.
func pwritevOnce(fd int, bufs [][]byte, skip int, off int64) (int, error) {
	if skip > 0 || len(bufs) == 1 {
		return unix.Pwrite(fd, bufs[0][skip:], off)
	}
	return unix.Pwritev(fd, bufs[:min(len(bufs), maxIovecs)], off)
}

func datasync(f *os.File) error {
	return control(f, "fdatasync", func(fd int) error { return unix.Fdatasync(fd) })
}

// preallocate reserves the space with fallocate; where the file system has no
// such thing, it writes the zeros.
func preallocate(f *os.File, size int64) error {
	err := control(f, "fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(f, size)
	}
	return err
}

// volume returns how many bytes the volume of dir has, free for us and in all.
func volume(dir string) (free, size int64, err error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		most := math.MaxInt64 / uint64(max(st.Bsize, 1))
		return int64(min(st.Bavail, most)) * st.Bsize, int64(min(st.Blocks, most)) * st.Bsize, err
	}
}

func control(f *os.File, op string, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	err = conn.Control(func(fd uintptr) {
		for {
			if cerr = call(int(fd)); !errors.Is(cerr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if cerr != nil {
		return &os.PathError{Op: op, Path: f.Name(), Err: cerr}
	}
	return nil
}
