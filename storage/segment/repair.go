package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Repair writes the header and the footer of a damaged file anew, if everything
// between them is what was written, by the size and the checksum that somebody
// else remembers. Both follow from the rest. A file that is damaged elsewhere
// stays as it is: the error matches ErrDamaged.
func Repair(fs vfs.FS, name string, id uint64, size int64, checksum uint64) error {
	file, err := fs.OpenFile(name)
	if err != nil {
		return fmt.Errorf("segment: repair: %w", err)
	}
	f := &File{name: name, file: file, size: size, foot: footer{checksum: checksum}}
	if err := errors.Join(f.repair(encodeHeader(id)), file.Close()); err != nil {
		return fmt.Errorf("segment: repair %s: %w", name, err)
	}
	return nil
}

func (f *File) repair(head []byte) error {
	if n, err := f.file.Size(); err != nil || n != f.size || n < HeaderSize+RunSize+FooterSize {
		return errors.Join(err, fmt.Errorf("%w: %d bytes, were %d", ErrDamaged, n, f.size))
	}
	h := xxhash.New()
	_, _ = h.Write(head) // never fails
	if _, err := io.Copy(h, io.NewSectionReader(f.file, HeaderSize, f.size-HeaderSize-FooterSize)); err != nil {
		return err
	}
	if got := h.Sum64(); got != f.foot.checksum {
		return fmt.Errorf("%w: checksum %016x, was %016x", ErrDamaged, got, f.foot.checksum)
	}
	if err := f.findFooter(); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(head, 0); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(f.foot.encode(), f.size-FooterSize); err != nil {
		return err
	}
	return f.file.Sync()
}

// findFooter works out the footer of a file that is whole up to it.
func (f *File) findFooter() error {
	end := f.size - FooterSize
	b, err := f.read(end-RunSize, RunSize)
	if err != nil {
		return err
	}
	last := decodeRun(b) // its index ends where the run table begins
	at := last.IndexPos + int64(last.Entries)*EntrySize + int64(last.pages())*crcSize
	if at < HeaderSize || at > end-RunSize || (end-at)%RunSize != 0 {
		return fmt.Errorf("%w: run of partition %d", ErrDamaged, last.Partition)
	}
	table, err := f.read(at, end-at)
	if err != nil {
		return err
	}
	first := decodeRun(table) // its index begins where the batches end
	f.foot.tablePos, f.foot.runs, f.foot.tableCRC = at, uint32(len(table)/RunSize), crc(table)
	f.foot.dataEnd = first.IndexPos
	for pos := int64(HeaderSize); pos < f.foot.dataEnd; f.foot.batches++ {
		b, err := f.read(pos, batchPrefix)
		if err != nil {
			return err
		}
		n := int64(int32(binary.BigEndian.Uint32(b[batchPrefix-4:])))
		if n <= 0 {
			return fmt.Errorf("%w: batch of %d bytes at %d", ErrDamaged, n, pos)
		}
		pos += batchPrefix + n
	}
	return nil
}

// batchPrefix is a batch's base offset and its length, which is that of the rest.
const batchPrefix = 12
