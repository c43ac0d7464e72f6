package wire

import (
	"bytes"
	"encoding/binary"
)

// Message is a PUBLISH packet. Its slices alias the packet it was read from.
type Message struct {
	Topic   []byte // empty: the alias names it
	Payload []byte
	ID      uint16 // 0 with QoS 0
	QoS     byte
	Dup     bool
	Retain  bool
	// Properties of a version 5 message, not walked yet: the walk checks them.
	Properties Properties
}

// Parse reads a PUBLISH packet in place. Everything but the properties is
// checked: flags, lengths, packet identifier, topic name.
func (m *Message) Parse(version, first byte, body []byte) error {
	m.QoS = first >> 1 & 3
	m.Dup = first&8 != 0
	m.Retain = first&1 != 0
	if m.QoS == 3 {
		return malformed("QoS 3")
	}
	if m.Dup && m.QoS == 0 {
		return malformed("DUP with QoS 0")
	}
	topic, rest, ok := cutBytes(body)
	if !ok {
		return malformed("topic name cut short")
	}
	m.ID = 0
	if m.QoS > 0 {
		if len(rest) < 2 {
			return malformed("packet identifier missing")
		}
		if m.ID = binary.BigEndian.Uint16(rest); m.ID == 0 {
			return violation("packet identifier 0")
		}
		rest = rest[2:]
	}
	m.Properties = Properties{}
	if version == V5 {
		var err error
		if m.Properties, rest, err = cutProperties(Publish, rest); err != nil {
			return err
		}
	} else if len(topic) == 0 {
		return malformed("empty topic name")
	}
	m.Topic, m.Payload = topic, rest
	return checkTopic(topic)
}

func checkTopic(topic []byte) error {
	if !ValidText(topic) {
		return malformed("topic name is not a valid UTF-8 string")
	}
	if bytes.IndexByte(topic, '+') >= 0 || bytes.IndexByte(topic, '#') >= 0 {
		return &Error{TopicNameInvalid, "topic name contains a wildcard"}
	}
	return nil
}

// Frame is a PUBLISH packet to be written.
type Frame struct {
	Version    byte
	QoS        byte
	Dup        bool
	Retain     bool
	ID         uint16
	Topic      []byte
	Properties []byte // encoded properties without their length; version 5 only
	Identifier uint32 // Subscription Identifier, 0 = none; version 5 only
	Payload    []byte
}

// Size is the size of the packet in bytes.
func (f *Frame) Size() int {
	n := f.remaining()
	return 1 + varintLen(n) + n
}

func (f *Frame) remaining() int {
	n := 2 + len(f.Topic) + len(f.Payload)
	if f.QoS > 0 {
		n += 2
	}
	if f.Version == V5 {
		p := f.properties()
		n += varintLen(p) + p
	}
	return n
}

func (f *Frame) properties() int {
	n := len(f.Properties)
	if f.Identifier != 0 {
		n += 1 + varintLen(int(f.Identifier))
	}
	return n
}

// Append appends the packet. idAt and propsAt are where, counted from the
// packet's first byte, the packet identifier (0 with QoS 0) and the first of
// Properties lie.
func (f *Frame) Append(dst []byte) (out []byte, idAt, propsAt int) {
	start := len(dst)
	first := Publish<<4 | f.QoS<<1
	if f.Dup {
		first |= 8
	}
	if f.Retain {
		first |= 1
	}
	dst = AppendVarint(append(dst, first), f.remaining())
	dst = appendBytes(dst, f.Topic)
	if f.QoS > 0 {
		idAt = len(dst) - start
		dst = binary.BigEndian.AppendUint16(dst, f.ID)
	}
	if f.Version == V5 {
		dst = AppendVarint(dst, f.properties())
		propsAt = len(dst) - start
		dst = append(dst, f.Properties...)
		if f.Identifier != 0 {
			dst = AppendIdentifier(dst, f.Identifier)
		}
	}
	return append(dst, f.Payload...), idAt, propsAt
}
