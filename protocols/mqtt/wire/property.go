package wire

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Property identifiers (MQTT 5.0, 2.2.2.2).
const (
	PropPayloadFormat          byte = 0x01
	PropMessageExpiry          byte = 0x02
	PropContentType            byte = 0x03
	PropResponseTopic          byte = 0x08
	PropCorrelationData        byte = 0x09
	PropSubscriptionIdentifier byte = 0x0B
	PropSessionExpiry          byte = 0x11
	PropAssignedClientID       byte = 0x12
	PropServerKeepAlive        byte = 0x13
	PropAuthMethod             byte = 0x15
	PropAuthData               byte = 0x16
	PropRequestProblemInfo     byte = 0x17
	PropWillDelay              byte = 0x18
	PropRequestResponseInfo    byte = 0x19
	PropResponseInfo           byte = 0x1A
	PropServerReference        byte = 0x1C
	PropReasonString           byte = 0x1F
	PropReceiveMaximum         byte = 0x21
	PropTopicAliasMaximum      byte = 0x22
	PropTopicAlias             byte = 0x23
	PropMaximumQoS             byte = 0x24
	PropRetainAvailable        byte = 0x25
	PropUser                   byte = 0x26
	PropMaximumPacketSize      byte = 0x27
	PropWildcardAvailable      byte = 0x28
	PropSubIDAvailable         byte = 0x29
	PropSharedAvailable        byte = 0x2A
)

// MaxUserProperties bounds the user properties of one packet.
const MaxUserProperties = 1024

// kind is how a property's value is encoded.
type kind byte

const (
	none kind = iota
	flag      // one byte, 0 or 1
	two       // two byte integer
	four      // four byte integer
	vint      // variable byte integer
	text      // UTF-8 string
	blob      // binary data
	pair      // UTF-8 string pair
)

type rule struct {
	kind    kind
	nonzero bool   // 0 is a protocol error
	in      uint32 // bit per packet type
}

func in(types ...byte) (mask uint32) {
	for _, t := range types {
		mask |= 1 << t
	}
	return mask
}

// rules is table 2-4 of the specification.
var rules = [...]rule{
	PropPayloadFormat:          {kind: flag, in: in(Publish, willProperties)},
	PropMessageExpiry:          {kind: four, in: in(Publish, willProperties)},
	PropContentType:            {kind: text, in: in(Publish, willProperties)},
	PropResponseTopic:          {kind: text, in: in(Publish, willProperties)},
	PropCorrelationData:        {kind: blob, in: in(Publish, willProperties)},
	PropSubscriptionIdentifier: {kind: vint, nonzero: true, in: in(Publish, Subscribe)},
	PropSessionExpiry:          {kind: four, in: in(Connect, Connack, Disconnect)},
	PropAssignedClientID:       {kind: text, in: in(Connack)},
	PropServerKeepAlive:        {kind: two, in: in(Connack)},
	PropAuthMethod:             {kind: text, in: in(Connect, Connack, Auth)},
	PropAuthData:               {kind: blob, in: in(Connect, Connack, Auth)},
	PropRequestProblemInfo:     {kind: flag, in: in(Connect)},
	PropWillDelay:              {kind: four, in: in(willProperties)},
	PropRequestResponseInfo:    {kind: flag, in: in(Connect)},
	PropResponseInfo:           {kind: text, in: in(Connack)},
	PropServerReference:        {kind: text, in: in(Connack, Disconnect)},
	PropReasonString: {kind: text, in: in(Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback,
		Disconnect, Auth)},
	PropReceiveMaximum:    {kind: two, nonzero: true, in: in(Connect, Connack)},
	PropTopicAliasMaximum: {kind: two, in: in(Connect, Connack)},
	PropTopicAlias:        {kind: two, in: in(Publish)}, // 0 is reported by the user of it as 0x94
	PropMaximumQoS:        {kind: flag, in: in(Connack)},
	PropRetainAvailable:   {kind: flag, in: in(Connack)},
	PropUser: {kind: pair, in: in(Connect, Connack, Publish, willProperties, Puback, Pubrec, Pubrel, Pubcomp,
		Subscribe, Suback, Unsubscribe, Unsuback, Disconnect, Auth)},
	PropMaximumPacketSize: {kind: four, nonzero: true, in: in(Connect, Connack)},
	PropWildcardAvailable: {kind: flag, in: in(Connack)},
	PropSubIDAvailable:    {kind: flag, in: in(Connack)},
	PropSharedAvailable:   {kind: flag, in: in(Connack)},
}

// Properties walks one property section and checks it on the way: known and
// allowed identifiers, no duplicates, lengths, UTF-8, value ranges. The fields
// hold the property that Next found; slices alias the packet.
type Properties struct {
	ID   byte
	Num  uint32 // value of the integer kinds
	Data []byte // value of text and blob, name of a pair
	Val  []byte // value of a pair

	rest  []byte
	seen  uint64
	users int
	pt    byte
	err   *Error
}

// Next steps to the next property and returns false after the last one or at a
// fault (then Err says so).
func (p *Properties) Next() bool {
	if len(p.rest) == 0 || p.err != nil {
		return false
	}
	id := p.rest[0] // identifiers are variable byte integers, all below 128
	p.rest = p.rest[1:]
	if int(id) >= len(rules) || rules[id].kind == none {
		return p.fail(malformed("unknown property"))
	}
	r := &rules[id]
	if r.in&(1<<p.pt) == 0 {
		return p.fail(violation("property not allowed in this packet"))
	}
	many := id == PropUser || id == PropSubscriptionIdentifier && p.pt == Publish
	if p.seen&(1<<id) != 0 && !many {
		return p.fail(violation("property given twice"))
	}
	p.seen |= 1 << id
	p.ID = id
	if !p.value(r.kind) {
		return false
	}
	if r.nonzero && p.Num == 0 {
		return p.fail(violation("property may not be zero"))
	}
	return true
}

// value reads one value of kind k into the fields.
func (p *Properties) value(k kind) bool {
	b := p.rest
	switch k {
	case flag:
		if len(b) < 1 {
			return p.fail(malformed("property cut short"))
		}
		if b[0] > 1 {
			return p.fail(violation("property must be 0 or 1"))
		}
		p.Num, p.rest = uint32(b[0]), b[1:]
	case two:
		if len(b) < 2 {
			return p.fail(malformed("property cut short"))
		}
		p.Num, p.rest = uint32(binary.BigEndian.Uint16(b)), b[2:]
	case four:
		if len(b) < 4 {
			return p.fail(malformed("property cut short"))
		}
		p.Num, p.rest = binary.BigEndian.Uint32(b), b[4:]
	case vint:
		v, n, err := varint(b)
		if err != nil || n == 0 {
			return p.fail(malformed("property is not a variable byte integer"))
		}
		p.Num, p.rest = uint32(v), b[n:]
	case text:
		p.Data = p.bytes(true)
	case blob:
		p.Data = p.bytes(false)
	case pair:
		if p.users++; p.users > MaxUserProperties {
			return p.fail(&Error{PacketTooLarge, "too many user properties"})
		}
		p.Data = p.bytes(true)
		p.Val = p.bytes(true)
	}
	return p.err == nil
}

func (p *Properties) bytes(utf bool) []byte {
	if p.err != nil {
		return nil
	}
	v, rest, ok := cutBytes(p.rest)
	if !ok {
		p.fail(malformed("property cut short"))
		return nil
	}
	if utf && !ValidText(v) {
		p.fail(malformed("property is not a valid UTF-8 string"))
		return nil
	}
	p.rest = rest
	return v
}

func (p *Properties) fail(e *Error) bool {
	p.err = e
	return false
}

// Err returns the fault that ended the walk, or nil.
func (p *Properties) Err() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

// cutProperties splits a property section with its length off b.
func cutProperties(pt byte, b []byte) (Properties, []byte, error) {
	size, n, err := varint(b)
	if err != nil {
		return Properties{}, nil, err
	}
	if n == 0 || size > len(b)-n {
		return Properties{}, nil, malformed("properties cut short")
	}
	return Properties{pt: pt, rest: b[n : n+size]}, b[n+size:], nil
}

// checkProperties is cutProperties with the whole section checked.
func checkProperties(pt byte, b []byte) (section, rest []byte, err error) {
	p, rest, err := cutProperties(pt, b)
	if err != nil {
		return nil, nil, err
	}
	section = p.rest
	for p.Next() {
	}
	if p.err == nil && p.seen&(1<<PropAuthData) != 0 && p.seen&(1<<PropAuthMethod) == 0 { // 3.1.2.11.10
		p.err = violation("authentication data without a method")
	}
	return section, rest, p.Err()
}

// cutBytes splits a field with a two byte length off b.
func cutBytes(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > len(b)-2 {
		return nil, nil, false
	}
	return b[2 : 2+n : 2+n], b[2+n:], true
}

// ValidText reports whether b is a string as 1.5.4 wants it: well formed UTF-8
// without U+0000, at most 65,535 bytes.
func ValidText(b []byte) bool {
	return len(b) <= 65535 && utf8.Valid(b) && bytes.IndexByte(b, 0) < 0
}

// AppendFlag appends a property of one byte.
func AppendFlag(dst []byte, id, v byte) []byte { return append(dst, id, v) }

// AppendTwo appends a property of two bytes.
func AppendTwo(dst []byte, id byte, v uint16) []byte {
	return binary.BigEndian.AppendUint16(append(dst, id), v)
}

// AppendFour appends a property of four bytes.
func AppendFour(dst []byte, id byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, id), v)
}

// AppendIdentifier appends a Subscription Identifier.
func AppendIdentifier(dst []byte, v uint32) []byte {
	return AppendVarint(append(dst, PropSubscriptionIdentifier), int(v))
}

// AppendText appends a string or binary property. v is at most 65,535 bytes.
func AppendText[T ~string | ~[]byte](dst []byte, id byte, v T) []byte {
	return appendBytes(append(dst, id), v)
}

// AppendUser appends a user property. name and v are at most 65,535 bytes.
func AppendUser[N, V ~string | ~[]byte](dst []byte, name N, v V) []byte {
	return appendBytes(appendBytes(append(dst, PropUser), name), v)
}

func appendBytes[T ~string | ~[]byte](dst []byte, v T) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(v)))
	return append(dst, v...)
}
