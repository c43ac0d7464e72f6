package checkpoint

import (
	"errors"
	"fmt"
	"io"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Attach has fn name the files outside of the store that belong to a checkpoint,
// whose payload it is given. It is called before the store is used by others.
func (s *Store) Attach(fn func(m Meta, payload io.Reader) ([]string, error)) { s.attached = fn }

// Export is Read for a checkpoint that leaves the node: the files that belong to
// it follow its payload, and count in Meta.Size.
func (s *Store) Export(id string) (Meta, io.ReadCloser, error) {
	m, r, err := s.Read(id)
	if err != nil || s.attached == nil {
		return m, r, err
	}
	ex := &export{closers: []io.Closer{r}}
	if err := s.export(ex, &m, r.(*payload)); err != nil {
		return Meta{}, nil, fmt.Errorf("checkpoint %s: %w", id, errors.Join(err, ex.Close()))
	}
	return m, ex, nil
}

func (s *Store) export(ex *export, m *Meta, r *payload) error {
	names, err := s.attached(*m, r)
	if err != nil {
		return err
	}
	ex.parts = []*io.SectionReader{io.NewSectionReader(r.SectionReader, 0, m.Size)}
	for _, name := range names {
		f, size, err := openSized(s.fs, name)
		if err != nil {
			return err
		}
		ex.closers = append(ex.closers, f)
		ex.parts = append(ex.parts, io.NewSectionReader(f, 0, size))
		m.Size += size
	}
	readers := make([]io.Reader, len(ex.parts))
	for i, part := range ex.parts {
		readers[i] = part
	}
	ex.Reader = io.MultiReader(readers...)
	return nil
}

func openSized(fs vfs.FS, name string) (vfs.File, int64, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// export is a payload and the files behind it.
type export struct {
	io.Reader
	parts   []*io.SectionReader
	closers []io.Closer
}

func (e *export) Close() error {
	var errs []error
	for _, c := range e.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
