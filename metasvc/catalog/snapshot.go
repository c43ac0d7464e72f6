package catalog

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// maxOp bounds one op of a snapshot: names and arguments come from frames far
// smaller.
const maxOp = 16 << 20

// Write writes a snapshot: a header, then the ops that build the state, each
// behind its length.
func (s *State) Write(w io.Writer) error {
	bw := bufio.NewWriterSize(w, 64<<10)
	head := codec.AppendUint([]byte{Version}, s.revision)
	if _, err := bw.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(head)))); err != nil {
		return err
	}
	if _, err := bw.Write(head); err != nil {
		return err
	}
	var buf []byte
	var err error
	put := func(op Op) {
		buf = appendOp(append(buf[:0], 0, 0, 0, 0), op)
		binary.LittleEndian.PutUint32(buf, uint32(len(buf)-4))
		if err == nil {
			_, err = bw.Write(buf)
		}
	}
	put(setProducers{s.producers})
	s.Exchanges(func(x *kernel.Exchange) { put(PutExchange{*x}) })
	s.Topics(func(t *kernel.Topic) { put(PutTopic{*t}) })
	s.Groups(func(g *Group) { put(PutGroup{*g}) })
	s.Bindings(func(b *Binding) { put(PutBinding{*b}) })
	if err != nil {
		return err
	}
	return bw.Flush()
}

// Read reads a snapshot up to the end of r.
func Read(r io.Reader) (*State, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := readBlock(br, nil)
	if err != nil {
		return nil, fmt.Errorf("catalog snapshot: %w", err)
	}
	hr := &codec.Reader{B: head}
	if v := hr.Byte(); hr.Err() == nil && v != Version {
		return nil, fmt.Errorf("%w %d of a snapshot", ErrVersion, v)
	}
	s := &State{}
	revision := hr.Uint()
	if err := hr.Done(); err != nil {
		return nil, fmt.Errorf("catalog snapshot: %w", err)
	}
	var buf []byte
	for {
		buf, err = readBlock(br, buf)
		if err == io.EOF {
			s.revision = revision
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("catalog snapshot: %w", err)
		}
		or := &codec.Reader{B: buf}
		op, err := readOp(or)
		if err == nil {
			err = or.Done()
		}
		if err == nil {
			err = op.apply(s, &Result{})
		}
		if err != nil {
			return nil, fmt.Errorf("catalog snapshot: %w", err)
		}
	}
}

func readBlock(r io.Reader, buf []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > maxOp {
		return nil, fmt.Errorf("%w: block of %d bytes", codec.ErrCorrupt, n)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, fmt.Errorf("%w: it ends early", codec.ErrCorrupt)
	}
	return buf, nil
}
