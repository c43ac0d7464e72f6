package amqp

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// Message properties map to record headers as docs/properties.md says.

const (
	headerCC          = "CC"
	headerBCC         = "BCC"
	headerTombstone   = "x-tombstone"
	headerRetain      = "x-mqtt-retain"
	headerCorrelation = "x-correlation-id"

	deliveryTransient  = 1
	deliveryPersistent = 2

	// maxTimestamp is the last second of the year 9999; timestamps beyond it
	// are kept as properties, but order nothing.
	maxTimestamp = 253402300799
)

// textProperties are the properties that are stored as they are, by flag.
var textProperties = [...]struct {
	flag uint16
	name string
	of   func(*wire.Properties) *[]byte
}{
	{wire.HasContentType, kernel.HeaderContentType, func(p *wire.Properties) *[]byte { return &p.ContentType }},
	{wire.HasContentEncoding, kernel.HeaderContentEncoding, func(p *wire.Properties) *[]byte { return &p.ContentEncoding }},
	{wire.HasCorrelationID, kernel.HeaderCorrelationID, func(p *wire.Properties) *[]byte { return &p.CorrelationID }},
	{wire.HasReplyTo, kernel.HeaderReplyTo, func(p *wire.Properties) *[]byte { return &p.ReplyTo }},
	{wire.HasMessageID, kernel.HeaderMessageID, func(p *wire.Properties) *[]byte { return &p.MessageID }},
	{wire.HasType, kernel.HeaderType, func(p *wire.Properties) *[]byte { return &p.Type }},
	{wire.HasUserID, kernel.HeaderUserID, func(p *wire.Properties) *[]byte { return &p.UserID }},
	{wire.HasAppID, kernel.HeaderAppID, func(p *wire.Properties) *[]byte { return &p.AppID }},
	{wire.HasClusterID, kernel.HeaderClusterID, func(p *wire.Properties) *[]byte { return &p.ClusterID }},
}

// taken reports whether a client's header cannot be stored under its own name,
// because the name is that of a property.
func taken(name string) bool {
	switch name {
	case kernel.HeaderContentType, kernel.HeaderContentEncoding, kernel.HeaderCorrelationID, kernel.HeaderReplyTo,
		kernel.HeaderMessageID, kernel.HeaderTimestamp, kernel.HeaderPriority, kernel.HeaderType,
		kernel.HeaderAppID, kernel.HeaderUserID, kernel.HeaderClusterID:
		return true
	}
	return kernel.IsDeathHeader(name) // a client cannot say how a message died
}

// builder makes records out of messages, in memory that it uses again. The
// record aliases what it was built from.
type builder struct {
	record kernel.Record
	now    int64    // when what it is given came, in ms since 1970; 0 = at this moment
	text   []byte   // decimal numbers and made-up names of the record's headers
	keys   []string // further routing keys
	fields []byte   // content of the header table, aliased
	id     []byte   // deduplication id, nil = none
	public []byte   // the table without what nobody may see
	// retain: it is to be retained, too. Only what goes to amq.topic has the name
	// for that.
	retain, mayRetain bool
}

// alias is a string over bytes that the caller keeps unchanged for as long as
// the string is used.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// keptHeaders is how many headers a builder keeps room for between messages;
// keptText bounds its bytes, and those of an encoder.
const (
	keptHeaders = 256
	keptText    = 16 << 10
)

// trim lets go of what a message with many headers took. The record is no longer
// valid.
func (b *builder) trim() {
	if cap(b.record.Headers) > keptHeaders {
		b.record.Headers = nil
	}
	if cap(b.keys) > keptHeaders {
		b.keys = nil
	}
	if cap(b.text) > keptText {
		b.text = nil
	}
	if cap(b.public) > keptText {
		b.public = nil
	}
}

// bytesOf is the bytes of a string, which must not be written to. They are
// never nil.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

func (b *builder) add(name string, value []byte) {
	b.record.Headers = append(b.record.Headers, kernel.Header{Key: name, Value: value})
}

// number returns a decimal text. When text grows, texts given before stay in
// the memory they are in.
func (b *builder) number(n int64) []byte {
	start := len(b.text)
	b.text = strconv.AppendInt(b.text, n, 10)
	return b.text[start:len(b.text):len(b.text)]
}

// build makes b.record out of a message.
func (b *builder) build(m *wire.BasicPublish, p *wire.Properties, body []byte, user string) error {
	b.text, b.keys, b.fields, b.id = b.text[:0], b.keys[:0], nil, nil
	b.retain, b.mayRetain = false, m.Exchange == kernel.ExchangeTopic
	b.record = kernel.Record{Key: bytesOf(m.RoutingKey), Value: body, Headers: b.record.Headers[:0]}
	if body == nil {
		b.record.Value = []byte{} // null would be a tombstone
	}
	b.add(kernel.HeaderExchange, bytesOf(m.Exchange))
	if err := check(p, user); err != nil {
		return err
	}
	switch {
	case !p.Has(wire.HasDeliveryMode):
		b.add(kernel.HeaderQoS, []byte{})
	case p.DeliveryMode != deliveryPersistent:
		b.add(kernel.HeaderQoS, bytesOf("0"))
	}
	for i := range textProperties {
		if t := &textProperties[i]; p.Has(t.flag) {
			b.add(t.name, *t.of(p))
		}
	}
	if p.Has(wire.HasPriority) {
		b.add(kernel.HeaderPriority, b.number(int64(p.Priority)))
	}
	b.timestamp(p)
	if err := b.expiration(p); err != nil {
		return err
	}
	if p.Has(wire.HasHeaders) {
		return b.table(p, m.RoutingKey)
	}
	return nil
}

// check refuses properties that ask for what does not work or is not true.
func check(p *wire.Properties, user string) error {
	if p.Has(wire.HasReplyTo) && string(p.ReplyTo) == replyToQueue { // else it has been replaced
		return faultf(wire.PreconditionFailed, "fast reply consumer does not exist")
	}
	if p.Has(wire.HasUserID) && string(p.UserID) != user {
		return faultf(wire.PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", p.UserID, user)
	}
	if p.Has(wire.HasDeliveryMode) && p.DeliveryMode != deliveryTransient && p.DeliveryMode != deliveryPersistent {
		return faultf(wire.PreconditionFailed, "invalid message: {delivery_mode_unknown,%d}", p.DeliveryMode)
	}
	return nil
}

func (b *builder) timestamp(p *wire.Properties) {
	if !p.Has(wire.HasTimestamp) {
		b.record.Timestamp = b.came()
		return
	}
	if p.Timestamp <= maxTimestamp {
		b.record.Timestamp = int64(p.Timestamp) * 1000
	} else {
		b.record.Timestamp = b.came()
	}
	start := len(b.text)
	b.text = strconv.AppendUint(b.text, p.Timestamp, 10)
	b.add(kernel.HeaderTimestamp, b.text[start:len(b.text):len(b.text)])
}

// came is the time of a message whose publisher gives none.
func (b *builder) came() int64 {
	if b.now != 0 {
		return b.now
	}
	return time.Now().UnixMilli()
}

// expiration turns the time to live into a time.
func (b *builder) expiration(p *wire.Properties) error {
	if !p.Has(wire.HasExpiration) {
		return nil
	}
	ttl, err := strconv.ParseUint(strings.TrimPrefix(alias(p.Expiration), "+"), 10, 64)
	if err != nil || ttl > maxTTL {
		text := strings.ToValidUTF8(string(p.Expiration), "?")
		return faultf(wire.PreconditionFailed, "invalid expiration '%s': %s", text, whyNoTime(text))
	}
	b.add(kernel.HeaderExpiresAt, b.number(kernel.Millis()+int64(ttl)))
	b.add(kernel.HeaderTTL, p.Expiration)
	return nil
}

// whyNoTime says in RabbitMQ's words why a text is no number of milliseconds.
func whyNoTime(text string) string {
	digits := strings.TrimLeft(text, "+-")
	rest := strings.TrimLeft(digits, "0123456789")
	switch {
	case len(digits) == len(rest) || len(text)-len(digits) > 1:
		return "no_integer"
	case rest != "":
		return sprintf("{leftover_string,%q}", rest)
	case text[0] == '-':
		return sprintf("{value_negative,%s}", text)
	}
	return sprintf("{value_too_large,%s}", text)
}

// table stores the header table: every value that has a text as a header, and
// the table itself when the headers alone would not bring it back.
// It leaves BCC out, of p too.
func (b *builder) table(p *wire.Properties, routingKey string) error {
	content, err := b.copies(p.Headers)
	if err != nil {
		return err
	}
	p.Headers, b.fields = content, content
	exact := len(content) == 0
	for w := wire.WalkTable(content); w.Next(); {
		name := alias(w.Name)
		switch {
		case name == kernel.HeaderKey && w.Tag == 'S':
			b.record.Key = w.Value
			exact = true
			continue
		case name == headerRetain && b.mayRetain && isTrue(w.Tag, w.Value):
			if !b.retain {
				b.add(kernel.HeaderRetain, bytesOf("1"))
			}
			b.retain, exact = true, true
			continue
		}
		text, ok, plain := b.valueText(w.Tag, w.Value)
		exact = exact || !plain
		if ok {
			b.add(b.storedName(name), text)
		}
		if name == kernel.HeaderDedup && b.id == nil {
			b.id = text // the same text is the same id, from a number as well
		}
	}
	if string(b.record.Key) != routingKey {
		b.add(kernel.HeaderRoute, bytesOf(routingKey))
	}
	if exact {
		b.add(kernel.HeaderTable, content)
	}
	return nil
}

// isTrue reports whether a table value says yes.
func isTrue(tag byte, v []byte) bool {
	return tag == 't' && v[0] != 0 || tag == 'S' && (string(v) == "true" || string(v) == "1")
}

// storedName is the header name under which a client's header is stored.
func (b *builder) storedName(name string) string {
	if !taken(name) && !strings.HasPrefix(name, kernel.HeaderReserved) {
		return name
	}
	start := len(b.text)
	b.text = append(append(b.text, kernel.HeaderUser...), name...)
	return alias(b.text[start:len(b.text):len(b.text)])
}

// valueText is the text of a table value, if it has one, and whether the text
// says everything about it.
func (b *builder) valueText(tag byte, v []byte) (text []byte, ok, plain bool) {
	switch tag {
	case 'S':
		valid := utf8.Valid(v)
		return v, valid, valid
	case 'V':
		return nil, true, true
	case 't':
		if v[0] != 0 {
			return bytesOf("true"), true, false
		}
		return bytesOf("false"), true, false
	case 'x', 'A', 'F':
		return nil, false, false
	}
	start := len(b.text)
	b.text = appendNumber(b.text, tag, v)
	return b.text[start:len(b.text):len(b.text)], true, false
}

// appendNumber appends the decimal text of a numeric table value.
func appendNumber(dst []byte, tag byte, v []byte) []byte {
	var u uint64
	for _, octet := range v {
		u = u<<8 | uint64(octet)
	}
	switch tag {
	case 'b':
		return strconv.AppendInt(dst, int64(int8(u)), 10)
	case 's':
		return strconv.AppendInt(dst, int64(int16(u)), 10)
	case 'I':
		return strconv.AppendInt(dst, int64(int32(u)), 10)
	case 'l', 'L':
		return strconv.AppendInt(dst, int64(u), 10)
	case 'f':
		return strconv.AppendFloat(dst, float64(math.Float32frombits(uint32(u))), 'g', -1, 32)
	case 'd':
		return strconv.AppendFloat(dst, math.Float64frombits(u), 'g', -1, 64)
	case 'D':
		scale, value := int(v[0]), int64(int32(u))
		dst = strconv.AppendInt(dst, value, 10)
		if scale > 0 {
			dst = strconv.AppendInt(append(dst, "e-"...), int64(scale), 10)
		}
		return dst
	}
	return strconv.AppendUint(dst, u, 10)
}
