package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sent is a checkpoint as it goes to another node, byte by byte: the number of bytes
// behind the header (8, little endian), header and configuration, payload, and the
// files that belong to it.
type Sent struct {
	parts   []*io.SectionReader
	closers []io.Closer
	size    int64
}

// Send opens the newest checkpoint for another node, whose Store.Receive takes it. It
// must be closed. The error is ErrNone if there is none.
func (s *Store) Send() (*Sent, error) {
	list := s.List()
	if len(list) == 0 {
		return nil, ErrNone
	}
	m, r, err := s.Export(list[0].ID())
	if err != nil {
		return nil, err
	}
	out := &Sent{closers: []io.Closer{r}}
	head := append(binary.LittleEndian.AppendUint64(nil, uint64(m.Size)), encodeHeader(m)...)
	out.add(io.NewSectionReader(bytes.NewReader(head), 0, int64(len(head))))
	switch r := r.(type) {
	case *payload:
		out.add(r.SectionReader)
	case *export:
		for _, part := range r.parts {
			out.add(part)
		}
	}
	return out, nil
}

func (s *Sent) add(r *io.SectionReader) {
	s.parts = append(s.parts, r)
	s.size += r.Size()
}

// Size is how many bytes there are.
func (s *Sent) Size() int64 { return s.size }

// ReadAt implements io.ReaderAt.
func (s *Sent) ReadAt(b []byte, off int64) (n int, err error) {
	for _, r := range s.parts {
		if off >= r.Size() {
			off -= r.Size()
			continue
		}
		k, err := r.ReadAt(b[n:min(len(b), n+int(min(r.Size()-off, int64(len(b)))))], off)
		n, off = n+k, 0
		if n == len(b) {
			return n, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
	}
	return n, io.EOF
}

// Close lets the files go.
func (s *Sent) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// ErrStale: a checkpoint is older than one that is here.
var ErrStale = errors.New("checkpoint: there is a newer one")

// Receive writes a checkpoint that another node sends, all of it, unless there is a
// newer one: ErrStale. The writer is to be committed or aborted.
func (s *Store) Receive(r io.Reader) (*Writer, error) {
	m, err := receiveHeader(r)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: receive: %w", err)
	}
	if list := s.List(); len(list) > 0 && list[0].Index > m.Index {
		return nil, fmt.Errorf("checkpoint: receive %s: %w", m.ID(), ErrStale)
	}
	w, err := s.Create(m)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(w, r, m.Size); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint: receive %s: %w", m.ID(), err), w.Abort())
	}
	return w, nil
}

func receiveHeader(r io.Reader) (Meta, error) {
	head := make([]byte, 8+headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return Meta{}, err
	}
	size := binary.LittleEndian.Uint64(head)
	m, n, err := decodeFixed(head[8:])
	if err != nil {
		return Meta{}, err
	}
	if size > 1<<62 {
		return Meta{}, fmt.Errorf("%w: %d bytes", ErrCorrupt, size)
	}
	m.Configuration, m.Size = make([]byte, n), int64(size)
	if _, err := io.ReadFull(r, m.Configuration); err != nil {
		return Meta{}, err
	}
	if want := encodeHeader(m); !bytes.Equal(want[:headerSize], head[8:]) {
		return Meta{}, fmt.Errorf("%w: header checksum", ErrCorrupt)
	}
	return m, nil
}
