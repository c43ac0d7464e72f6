package keyfile

import (
	"bytes"
	"errors"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// ReadChain calls fn for every key that a chain of files in dir has, oldest first,
// in ascending order, with the value that counts. The entry's slices are valid
// during the call. As with a Reader, an error means that the caller has nothing.
func ReadChain(fs vfs.FS, dir string, chain []Meta, fn func(Entry) error) (err error) {
	c := &chainReader{}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, m := range chain {
		r, err := Open(fs, dir, m)
		if err != nil {
			return err
		}
		f := &chainFile{Reader: r}
		c.files = append(c.files, f)
		if err := f.step(); err != nil {
			return err
		}
	}
	for {
		f := c.lowest()
		if f == nil {
			return nil
		}
		if !f.entry.Deleted {
			if err := fn(f.entry); err != nil {
				return err
			}
		}
		if err := c.pass(f); err != nil {
			return err
		}
	}
}

// chainReader stands on the next entry of each file. There are few.
type chainReader struct{ files []*chainFile }

type chainFile struct {
	*Reader
	entry Entry
	more  bool
}

func (f *chainFile) step() (err error) {
	f.entry, f.more, err = f.Next()
	return err
}

// lowest returns the newest of the files that stand on the lowest key, nil at the
// end.
func (c *chainReader) lowest() (low *chainFile) {
	for _, f := range c.files {
		if f.more && (low == nil || bytes.Compare(f.entry.Key, low.entry.Key) <= 0) {
			low = f
		}
	}
	return low
}

// pass steps over the key of f in all files, in f last: it is its memory.
func (c *chainReader) pass(f *chainFile) error {
	for _, o := range c.files {
		if o != f && o.more && bytes.Equal(o.entry.Key, f.entry.Key) {
			if err := o.step(); err != nil {
				return err
			}
		}
	}
	return f.step()
}

func (c *chainReader) close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
