package record

import (
	"encoding/binary"
	"fmt"
)

// carried is the size of the fixed fields of a view that is carried.
const carried = 8 + 8 + 8 + 4 + 2

// AppendCarried appends the view in a form for another process of the same version,
// which ReadCarried reads. Nothing on a disk has it.
func (v *View) AppendCarried(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.Offset))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.Timestamp))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.ProducerID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.Size))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(v.Attributes))
	dst = appendField(dst, v.Key)
	dst = appendField(dst, v.Value)
	dst = binary.AppendVarint(dst, int64(v.headerCount))
	dst = binary.AppendVarint(dst, int64(len(v.headers)))
	return append(dst, v.headers...)
}

// CarriedSize is an upper bound on what AppendCarried adds.
func (v *View) CarriedSize() int {
	return carried + 4*binary.MaxVarintLen64 + len(v.Key) + len(v.Value) + len(v.headers)
}

// ReadCarried reads a view from the begin of b, and returns what is behind it. The view
// aliases b. ErrInvalid if it is none; headers are checked.
func (v *View) ReadCarried(b []byte) (rest []byte, err error) {
	if len(b) < carried {
		return nil, fmt.Errorf("%w: a carried record ends early", ErrInvalid)
	}
	*v = View{
		Offset:     int64(binary.LittleEndian.Uint64(b)),
		Timestamp:  int64(binary.LittleEndian.Uint64(b[8:])),
		ProducerID: int64(binary.LittleEndian.Uint64(b[16:])),
		Size:       int(int32(binary.LittleEndian.Uint32(b[24:]))),
		Attributes: int16(binary.LittleEndian.Uint16(b[28:])),
	}
	pos := carried
	if v.Key, pos = field(b, pos); pos >= 0 {
		v.Value, pos = field(b, pos)
	}
	count := int64(-1)
	if pos >= 0 {
		count, pos = varint(b, pos)
	}
	if pos >= 0 {
		v.headers, pos = field(b, pos)
	}
	if pos < 0 || v.Size < 0 || v.headers == nil || count < 0 || count > int64(len(v.headers))/2 {
		return nil, fmt.Errorf("%w: malformed carried record", ErrInvalid)
	}
	v.headerCount = int32(count)
	return b[pos:], v.Headers().check()
}

// appendField appends a byte string with its length; null has length -1.
func appendField(dst, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(p))), p...)
}
