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
// behind its length. Equal states give equal bytes.
func (s *State) Write(w io.Writer) error {
	bw := bufio.NewWriterSize(w, 64<<10)
	head := codec.AppendUint([]byte{Version}, s.revision)
	head = codec.AppendUint(head, uint64(1+s.accessLen()+s.exchanges.Len()+s.topics.Len()+s.groups.Len()+s.bindings.Len()+s.policies.Len()+s.nodeLen()))
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
	s.putAccess(put)
	s.Policies(func(p *kernel.Policy) { put(PutPolicy{*p}) })
	s.Exchanges(func(x *kernel.Exchange) { put(PutExchange{*x}) })
	s.Topics(func(t *kernel.Topic) { put(PutTopic{*t}) })
	s.Groups(func(g *Group) { put(PutGroup{*g}) })
	s.Bindings(func(b *Binding) { put(PutBinding{*b}) })
	s.putNodes(put)
	if err != nil {
		return err
	}
	return bw.Flush()
}

// Read reads a snapshot, to the end of r.
func Read(r io.Reader) (*State, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	s, err := read(br)
	if err != nil {
		return nil, fmt.Errorf("catalog snapshot: %w", err)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("catalog snapshot: %w: bytes left over", codec.ErrCorrupt)
	}
	return s, nil
}

func read(r io.Reader) (*State, error) {
	head, err := readBlock(r, nil)
	if err != nil {
		return nil, err
	}
	hr := &codec.Reader{B: head}
	if v := hr.Byte(); hr.Err() == nil && v != Version {
		return nil, fmt.Errorf("%w %d", ErrVersion, v)
	}
	s := &State{revision: hr.Uint()}
	count := hr.Uint()
	if err := hr.Done(); err != nil {
		return nil, err
	}
	var buf []byte
	for range count {
		if buf, err = readBlock(r, buf); err != nil {
			return nil, err
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
			return nil, err
		}
	}
	return s, nil
}

func readBlock(r io.Reader, buf []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, fmt.Errorf("%w: it ends early", codec.ErrCorrupt)
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
