package amqp

import (
	"encoding/binary"
	"math"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// tagNames are RabbitMQ's names of the types of table values.
var tagNames = map[byte]string{
	't': "bool", 'b': "byte", 'B': "unsignedbyte", 's': "short", 'u': "unsignedshort", 'I': "signedint", 'i': "unsignedint",
	'l': "long", 'L': "long", 'f': "float", 'd': "double", 'D': "decimal", 'S': "longstr", 'x': "binary", 'T': "timestamp",
	'A': "array", 'F': "table", 'V': "void",
}

// copies takes the further routing keys out of the headers CC and BCC and
// returns the table without BCC, which nobody else may see.
func (b *builder) copies(content []byte) ([]byte, error) {
	secret := false
	for w := wire.WalkTable(content); w.Next(); {
		name := alias(w.Name)
		if name != headerCC && name != headerBCC {
			continue
		}
		secret = secret || name == headerBCC
		if w.Tag != 'A' {
			return nil, unacceptable(name, w.Tag)
		}
		for a := wire.WalkArray(w.Value); a.Next(); {
			if a.Tag != 'S' {
				return nil, unacceptable(name, a.Tag)
			}
			b.keys = append(b.keys, alias(a.Value))
		}
	}
	if !secret {
		return content, nil
	}
	b.public = keepFields(append(b.public[:0], content...), func(name, _ []byte) bool { return string(name) != headerBCC })
	return b.public, nil
}

func unacceptable(header string, tag byte) error {
	return faultf(wire.PreconditionFailed, "invalid message: {unacceptable_type_in_header,%q,%s}", header, tagNames[tag])
}

// AppendFields implements kernel.Fields: the headers of the message built last.
func (b *builder) AppendFields(dst []kernel.Field) []kernel.Field {
	for w := wire.WalkTable(b.fields); w.Next(); {
		f := kernel.Field{Name: alias(w.Name)}
		switch w.Tag {
		case 'V':
		case 'S', 'x':
			f.Kind, f.Text = kernel.FieldText, alias(w.Value)
		case 't':
			if f.Kind = kernel.FieldBool; w.Value[0] != 0 {
				f.Bits = 1
			}
		case 'f':
			f.Kind, f.Bits = kernel.FieldFloat, math.Float64bits(float64(math.Float32frombits(binary.BigEndian.Uint32(w.Value))))
		case 'd':
			f.Kind, f.Bits = kernel.FieldFloat, binary.BigEndian.Uint64(w.Value)
		case 'b', 'B', 's', 'u', 'I', 'i', 'l', 'L':
			f.Kind, f.Bits = kernel.FieldInt, uint64(integer(w.Tag, w.Value))
		default:
			f.Kind, f.Text = kernel.FieldOther, opaque(w.Tag, w.Value)
		}
		dst = append(dst, f)
	}
	return dst
}

// integer reads the value of an integer tag.
func integer(tag byte, v []byte) int64 {
	var u uint64
	for _, octet := range v {
		u = u<<8 | uint64(octet)
	}
	switch tag {
	case 'b':
		return int64(int8(u))
	case 's':
		return int64(int16(u))
	case 'I':
		return int64(int32(u))
	}
	return int64(u)
}

// opaque is a value as argument makes it a kernel.Raw, so that the two compare.
func opaque(tag byte, v []byte) string {
	entry := []byte{0, tag}
	if tag == 'A' || tag == 'F' {
		entry = binary.BigEndian.AppendUint32(entry, uint32(len(v)))
	}
	t, err := wire.ReadTable(append(entry, v...))
	if err != nil || len(t) != 1 {
		return "" // it has been checked when it came: no error
	}
	raw, _ := argument(t[0].Value).(kernel.Raw)
	return string(raw)
}
