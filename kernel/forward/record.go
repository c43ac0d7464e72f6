package forward

import (
	"encoding/binary"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// appendRecord appends a record.
func appendRecord(b []byte, r *kernel.Record) []byte {
	b = appendBytes(codec.AppendInt(b, r.Timestamp), r.Key)
	b = codec.AppendUint(b, uint64(len(r.Headers)))
	for i := range r.Headers {
		b = appendBytes(codec.AppendString(b, r.Headers[i].Key), r.Headers[i].Value)
	}
	return appendBytes(b, r.Value)
}

// recordSize is an upper bound on what appendRecord appends.
func recordSize(r *kernel.Record) int {
	n := 4*binary.MaxVarintLen64 + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 2*binary.MaxVarintLen64 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// record reads a record, which aliases the body, but for the slice of its headers, which
// is used again.
func (r *reader) record(to *kernel.Record) {
	to.Timestamp, to.Key = r.Int(), r.bytes()
	to.Headers = to.Headers[:0]
	for range r.Count() {
		if r.Err() != nil {
			break
		}
		to.Headers = append(to.Headers, kernel.Header{Key: r.alias(), Value: r.bytes()})
	}
	to.Value = r.bytes()
}

func appendWill(b []byte, w *kernel.Will) []byte {
	b = codec.AppendFlags(codec.AppendString(b, w.Topic), w.Retain)
	b = codec.AppendInt(codec.AppendInt(b, int64(w.Expiry)), int64(w.Delay))
	return appendRecord(b, &w.Record)
}

// will reads a will; its record aliases the body.
func (r *reader) will() (w kernel.Will) {
	w.Topic, w.Retain = r.String(), r.flag()
	w.Expiry, w.Delay = time.Duration(r.Int()), time.Duration(r.Int())
	r.record(&w.Record)
	return w
}

// appendRetained appends a retained message.
func appendRetained(b []byte, m *kernel.Retained) []byte {
	return appendRecord(codec.AppendUint(codec.AppendString(b, m.Name), m.Version), &m.Record)
}

// retainedSize is about how many bytes they take, with what is sent beside them.
func retainedSize(list []kernel.Retained) int {
	n := keepPart
	for i := range list {
		n += 2*binary.MaxVarintLen64 + len(list[i].Name) + recordSize(&list[i].Record)
	}
	return n
}

// retained reads a message that aliases the body.
func (r *reader) retained() (m kernel.Retained) {
	m.Name, m.Version = r.alias(), r.Uint()
	r.record(&m.Record)
	return m
}
