package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Flags of the properties, in the order they are written.
const (
	HasContentType     uint16 = 1 << 15
	HasContentEncoding uint16 = 1 << 14
	HasHeaders         uint16 = 1 << 13
	HasDeliveryMode    uint16 = 1 << 12
	HasPriority        uint16 = 1 << 11
	HasCorrelationID   uint16 = 1 << 10
	HasReplyTo         uint16 = 1 << 9
	HasExpiration      uint16 = 1 << 8
	HasMessageID       uint16 = 1 << 7
	HasTimestamp       uint16 = 1 << 6
	HasType            uint16 = 1 << 5
	HasUserID          uint16 = 1 << 4
	HasAppID           uint16 = 1 << 3
	HasClusterID       uint16 = 1 << 2

	reservedFlags uint16 = 1<<1 | 1<<0 // bit 0 would announce more flags; nobody uses them
)

// ClassBasic is the class of every content there is.
const ClassBasic = 60

// Properties of a message. Only fields whose flag is set mean anything. Byte
// slices alias what was parsed.
type Properties struct {
	Flags           uint16
	DeliveryMode    uint8
	Priority        uint8
	Timestamp       uint64 // seconds since 1970
	ContentType     []byte
	ContentEncoding []byte
	Headers         []byte // content of the table, without its length
	CorrelationID   []byte
	ReplyTo         []byte
	Expiration      []byte
	MessageID       []byte
	Type            []byte
	UserID          []byte
	AppID           []byte
	ClusterID       []byte
}

// Has reports whether the property with that flag is set.
func (p *Properties) Has(flag uint16) bool { return p.Flags&flag != 0 }

// ParseHeader parses the payload of a content header frame. p, unless the
// error is set, is overwritten and aliases payload; its header table has been
// checked to its depths.
func ParseHeader(payload []byte, p *Properties) (class uint16, bodySize uint64, err error) {
	c := cursor{rest: payload}
	class = c.short()
	c.short() // weight, unused
	bodySize = c.longlong()
	p.parse(&c)
	if c.err == nil && len(c.rest) != 0 {
		c.fail("bytes after the properties")
	}
	if c.err == nil && p.Has(HasHeaders) {
		c.err = CheckTable(p.Headers)
	}
	if c.err != nil {
		return class, bodySize, fmt.Errorf("content header: %w", c.err)
	}
	return class, bodySize, nil
}

func (p *Properties) parse(c *cursor) {
	p.Flags = c.short()
	if p.Flags&reservedFlags != 0 {
		c.fail("reserved property flags")
		return
	}
	c.property(p.Flags&HasContentType, &p.ContentType)
	c.property(p.Flags&HasContentEncoding, &p.ContentEncoding)
	if p.Has(HasHeaders) {
		p.Headers = c.longBytes()
	}
	if p.Has(HasDeliveryMode) {
		p.DeliveryMode = c.octet()
	}
	if p.Has(HasPriority) {
		p.Priority = c.octet()
	}
	c.property(p.Flags&HasCorrelationID, &p.CorrelationID)
	c.property(p.Flags&HasReplyTo, &p.ReplyTo)
	c.property(p.Flags&HasExpiration, &p.Expiration)
	c.property(p.Flags&HasMessageID, &p.MessageID)
	if p.Has(HasTimestamp) {
		p.Timestamp = c.longlong()
	}
	c.property(p.Flags&HasType, &p.Type)
	c.property(p.Flags&HasUserID, &p.UserID)
	c.property(p.Flags&HasAppID, &p.AppID)
	c.property(p.Flags&HasClusterID, &p.ClusterID)
}

func (c *cursor) property(set uint16, to *[]byte) {
	if set != 0 {
		*to = c.shortBytes()
	}
}

// append appends the flags and the properties.
func (p *Properties) append(b []byte) []byte {
	b = appendShort(b, p.Flags)
	b = appendProperty(b, p.Flags&HasContentType, p.ContentType)
	b = appendProperty(b, p.Flags&HasContentEncoding, p.ContentEncoding)
	if p.Has(HasHeaders) {
		b = appendLongstr(b, p.Headers)
	}
	if p.Has(HasDeliveryMode) {
		b = append(b, p.DeliveryMode)
	}
	if p.Has(HasPriority) {
		b = append(b, p.Priority)
	}
	b = appendProperty(b, p.Flags&HasCorrelationID, p.CorrelationID)
	b = appendProperty(b, p.Flags&HasReplyTo, p.ReplyTo)
	b = appendProperty(b, p.Flags&HasExpiration, p.Expiration)
	b = appendProperty(b, p.Flags&HasMessageID, p.MessageID)
	if p.Has(HasTimestamp) {
		b = appendLonglong(b, p.Timestamp)
	}
	b = appendProperty(b, p.Flags&HasType, p.Type)
	b = appendProperty(b, p.Flags&HasUserID, p.UserID)
	b = appendProperty(b, p.Flags&HasAppID, p.AppID)
	return appendProperty(b, p.Flags&HasClusterID, p.ClusterID)
}

func appendProperty(b []byte, set uint16, v []byte) []byte {
	if set == 0 {
		return b
	}
	return appendShortstr(b, v)
}

// HeaderFrameSize is the most that the header frame of AppendContent takes,
// overhead included.
func (p *Properties) HeaderFrameSize() int {
	size := FrameOverhead + 2 + 2 + 8 + 2 // class, weight, body size, flags
	for _, t := range [...]struct {
		flag uint16
		text []byte
	}{
		{HasContentType, p.ContentType}, {HasContentEncoding, p.ContentEncoding}, {HasCorrelationID, p.CorrelationID},
		{HasReplyTo, p.ReplyTo}, {HasExpiration, p.Expiration}, {HasMessageID, p.MessageID}, {HasType, p.Type},
		{HasUserID, p.UserID}, {HasAppID, p.AppID}, {HasClusterID, p.ClusterID},
	} {
		if p.Has(t.flag) {
			size += 1 + min(len(t.text), math.MaxUint8)
		}
	}
	if p.Has(HasHeaders) {
		size += 4 + len(p.Headers)
	}
	if p.Has(HasDeliveryMode) {
		size++
	}
	if p.Has(HasPriority) {
		size++
	}
	if p.Has(HasTimestamp) {
		size += 8
	}
	return size
}

// AppendContent appends the header frame and the body frames of a message. Body
// frames are no larger than frameMax, overhead included; a header frame cannot
// be split: whether it is small enough is for the caller to see to.
func AppendContent(b []byte, channel uint16, p *Properties, body []byte, frameMax int) []byte {
	b, start := beginFrame(b, FrameHeader, channel)
	b = append(b, 0, ClassBasic, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	b = endFrame(p.append(b), start)
	for chunk := frameMax - FrameOverhead; len(body) > 0; {
		n := min(chunk, len(body))
		b, start = beginFrame(b, FrameBody, channel)
		b = endFrame(append(b, body[:n]...), start)
		body = body[n:]
	}
	return b
}

// AppendPublish appends all frames of one publish.
func AppendPublish(b []byte, channel uint16, m *BasicPublish, p *Properties, body []byte, frameMax int) []byte {
	b = AppendMethod(b, channel, m)
	return AppendContent(b, channel, p, body, frameMax)
}
