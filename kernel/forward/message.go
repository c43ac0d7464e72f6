package forward

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// publish is a publish as it is carried. All of it aliases the frame, but for the slices.
type publish struct {
	publisher     uint64
	number        uint64 // of the publisher's publishes
	mandatory     bool
	retain        bool
	named         bool   // it is to the topic named by key, not to an exchange
	once          bool   // under a number of the session's
	known         bool   // the client's node knows of an alarm: it does not wait
	use           uint16 // the number
	exchange, key string
	record        kernel.Record
	keys          []string
	id            kernel.DedupID
	typed         bool
	fields        fields
}

// flagNamed is the bit of publish.named among the flags, which follow two numbers.
const flagNamed = 1 << 7

// appendPublish appends the body of a publish frame, but for the value of the record,
// which comes last. scratch is for its fields, and returned.
func appendPublish(b []byte, p *publish, r *kernel.Record, opt *kernel.PublishOptions, scratch []kernel.Field) ([]byte, []kernel.Field) {
	same := r.Key != nil && string(r.Key) == p.key
	identified := opt.ID != kernel.DedupID{}
	b = codec.AppendUint(codec.AppendUint(b, p.publisher), p.number)
	b = codec.AppendFlags(b, opt.Mandatory, p.retain, same, r.Value == nil, opt.Fields != nil, identified, len(opt.Keys) > 0, p.named)
	b = codec.AppendString(codec.AppendString(b, p.exchange), p.key)
	if p.named {
		b = codec.AppendFlags(b, p.once, p.known)
		b = codec.AppendUint(b, uint64(p.use))
	}
	if b = codec.AppendInt(b, r.Timestamp); !same {
		b = appendBytes(b, r.Key)
	}
	b = codec.AppendUint(b, uint64(len(r.Headers)))
	for i := range r.Headers {
		b = appendBytes(codec.AppendString(b, r.Headers[i].Key), r.Headers[i].Value)
	}
	if len(opt.Keys) > 0 {
		b = codec.AppendUint(b, uint64(len(opt.Keys)))
		for _, k := range opt.Keys {
			b = codec.AppendString(b, k)
		}
	}
	if identified {
		b = append(b, opt.ID[:]...)
	}
	if opt.Fields == nil {
		return b, scratch
	}
	scratch = opt.Fields.AppendFields(scratch[:0])
	start := len(b)
	b = appendFields(append(b, 0, 0, 0, 0), scratch)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	clear(scratch) // lets go of what it aliases
	return b, scratch
}

// read reads the body of a publish frame. The slices of p are used again.
func (p *publish) read(body []byte) error {
	r := read(body)
	same, null, identified, more := false, false, false, false
	p.publisher, p.number = r.Uint(), r.Uint()
	r.Flags(&p.mandatory, &p.retain, &same, &null, &p.typed, &identified, &more, &p.named)
	p.exchange, p.key = r.alias(), r.alias()
	if p.once, p.known, p.use = false, false, 0; p.named {
		r.Flags(&p.once, &p.known)
		p.use = r.number()
	}
	if p.record.Timestamp = r.Int(); same {
		p.record.Key = unsafe.Slice(unsafe.StringData(p.key), len(p.key))
	} else {
		p.record.Key = r.bytes()
	}
	p.record.Headers = p.record.Headers[:0]
	for range r.Count() {
		if r.Err() != nil {
			break
		}
		p.record.Headers = append(p.record.Headers, kernel.Header{Key: r.alias(), Value: r.bytes()})
	}
	if p.keys = p.keys[:0]; more {
		for range r.Count() {
			if r.Err() != nil {
				break
			}
			p.keys = append(p.keys, r.alias())
		}
	}
	if p.id = (kernel.DedupID{}); identified {
		copy(p.id[:], r.Bytes(len(p.id)))
	}
	if p.fields = (fields{}); p.typed {
		if n := r.Bytes(4); n != nil {
			p.fields.b = r.Bytes(int(binary.LittleEndian.Uint32(n)))
		}
	}
	if p.record.Value = r.B; null {
		p.record.Value = nil
	}
	if r.Err() != nil || null && len(r.B) > 0 {
		return fmt.Errorf("%w: a publish", errMalformed)
	}
	return nil
}

// reset lets go of what p aliases.
func (p *publish) reset() {
	clear(p.record.Headers[:cap(p.record.Headers)])
	clear(p.keys[:cap(p.keys)])
	*p = publish{record: kernel.Record{Headers: p.record.Headers[:0]}, keys: p.keys[:0]}
}

// options are the publish's; Fields is its own.
func (p *publish) options() kernel.PublishOptions {
	o := kernel.PublishOptions{Mandatory: p.mandatory, Keys: p.keys, ID: p.id}
	if p.typed {
		o.Fields = &p.fields
	}
	return o
}

// fields are typed headers as they are carried. It implements kernel.Fields: they are
// decoded only where somebody looks at them.
type fields struct {
	b   []byte
	err error // they were no fields
}

func appendFields(b []byte, list []kernel.Field) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for i := range list {
		f := &list[i]
		b = codec.AppendUint(append(codec.AppendString(b, f.Name), byte(f.Kind)), f.Bits)
		b = codec.AppendString(b, f.Text)
	}
	return b
}

// AppendFields implements kernel.Fields.
func (f *fields) AppendFields(dst []kernel.Field) []kernel.Field {
	r := read(f.b)
	for range r.Count() {
		if r.Err() != nil {
			break
		}
		dst = append(dst, kernel.Field{Name: r.alias(), Kind: kernel.FieldKind(r.Byte()), Bits: r.Uint(), Text: r.alias()})
	}
	f.err = r.done(kindPublish)
	return dst
}

// appendDeliveries appends what is handed out together.
func appendDeliveries(b []byte, batch []kernel.Delivery) []byte {
	b = codec.AppendUint(b, uint64(len(batch)))
	for i := range batch {
		d := &batch[i]
		b = codec.AppendInt(b, int64(d.Partition))
		b = codec.AppendInt(b, d.Offset)
		b = codec.AppendInt(codec.AppendInt(b, int64(d.Acquired)), int64(d.Failed))
		b = d.Record.AppendCarried(codec.AppendFlags(b, d.Redelivered))
	}
	return b
}

// deliveriesSize is an upper bound on what appendDeliveries appends.
func deliveriesSize(batch []kernel.Delivery) int {
	n := binary.MaxVarintLen64
	for i := range batch {
		n += 4*binary.MaxVarintLen64 + 1 + batch[i].Record.CarriedSize()
	}
	return n
}

// deliveries reads what appendDeliveries has written, into slices that are used again.
type deliveries struct {
	views []kernel.View
	batch []kernel.Delivery
	bytes int // of all records
}

func (d *deliveries) read(r *reader) error {
	n := r.Count()
	d.views, d.batch, d.bytes = d.views[:0], d.batch[:0], 0
	for range n {
		d.batch = append(d.batch, kernel.Delivery{
			Partition: int32(r.int()), Offset: r.Int(), Acquired: int32(r.int()), Failed: int32(r.int()), Redelivered: r.flag(),
		})
		if r.Err() != nil {
			break
		}
		var v kernel.View
		rest, err := v.ReadCarried(r.B)
		if err != nil {
			return fmt.Errorf("%w: a delivery: %w", errMalformed, err)
		}
		r.B = rest
		d.views = append(d.views, v)
		d.bytes += v.Size
	}
	if err := r.done(kindDeliver); err != nil {
		return err
	}
	for i := range d.batch {
		d.batch[i].Record = &d.views[i]
	}
	return nil
}

// reset lets go of what d aliases.
func (d *deliveries) reset() {
	clear(d.views)
	clear(d.batch)
}
