package vfs

import (
	"errors"
	"os"
)

// Link gives a file a second name, whose content is the same from then on. It is
// durable after SyncDir. The error matches errors.ErrUnsupported where a file system
// has no second names; others, as between two volumes, say why this one can have none.
// Nothing is to be concluded from an error but that a copy is needed.
func Link(fs FS, from, to string) error {
	if l, ok := fs.(linker); ok {
		return l.link(from, to)
	}
	return errors.ErrUnsupported
}

// linker is a file system with second names.
type linker interface{ link(from, to string) error }

func (osFS) link(from, to string) error { return osError(os.Link(from, to)) }
