package retain

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Version is the first byte of every value.
const Version = 1

// ErrVersion matches the error of a value of a version not known here.
var ErrVersion = errors.New("retain: unknown version")

// MaxTopic is the longest name of a topic that has something retained, in bytes.
const MaxTopic = 8 << 10

// The key is prefix, tenant, NUL and the topic's name. No tenant contains a NUL.
const prefix = "r/"

// Prefix begins the keys of all that is retained.
func Prefix() []byte { return []byte(prefix) }

// TenantPrefix begins the keys of what is retained in a tenant.
func TenantPrefix(tenant string) []byte { return []byte(prefix + tenant + "\x00") }

// Key is the key of what is retained of a topic.
func Key(tenant, topic string) []byte {
	b := make([]byte, 0, len(prefix)+len(tenant)+1+len(topic))
	b = append(append(b, prefix...), tenant...)
	return append(append(b, 0), topic...)
}

// Ours reports whether a key is one of Key.
func Ours(key []byte) bool { return len(key) >= len(prefix) && string(key[:len(prefix)]) == prefix }

// ParseKey takes apart what Key made.
func ParseKey(key []byte) (tenant, topic string, err error) {
	rest, ok := strings.CutPrefix(string(key), prefix)
	tenant, topic, cut := strings.Cut(rest, "\x00")
	if !ok || !cut || topic == "" {
		return "", "", fmt.Errorf("key of a retained message %q: %w", key, codec.ErrCorrupt)
	}
	return tenant, topic, nil
}

// CheckTopic returns CodeInvalidName unless a message may be retained under the
// name: it is none with wildcards, and not too long.
func CheckTopic(name string) error {
	switch {
	case name == "":
		return kernel.Errorf(kernel.CodeInvalidName, "topic", name, "a message without a topic name cannot be retained")
	case len(name) > MaxTopic:
		return kernel.Errorf(kernel.CodeInvalidName, "topic", name[:32]+"...", "a name of more than %d bytes cannot have a retained message", MaxTopic)
	case strings.ContainsAny(name, "+#\x00"):
		return kernel.Errorf(kernel.CodeInvalidName, "topic", name, "a name with + or # or NUL cannot have a retained message")
	}
	return nil
}

// ExpiresAt is when a record may not be delivered any more, in ms since 1970; 0
// is never.
func ExpiresAt(r *kernel.Record) int64 {
	for i := range r.Headers {
		if h := &r.Headers[i]; h.Key == kernel.HeaderExpiresAt {
			if ms, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil && ms > 0 {
				return ms
			}
		}
	}
	return 0
}

// Append appends the encoding of a message.
func Append(dst []byte, r *kernel.Record) []byte {
	dst = codec.AppendInt(append(dst, Version), ExpiresAt(r))
	dst = codec.AppendInt(dst, r.Timestamp)
	dst = appendBytes(appendBytes(dst, r.Key), r.Value)
	dst = codec.AppendUint(dst, uint64(len(r.Headers)))
	for i := range r.Headers {
		dst = codec.AppendString(dst, r.Headers[i].Key)
		dst = appendBytes(dst, r.Headers[i].Value)
	}
	return dst
}

// appendBytes writes 0 for nil, else one more than the length and the bytes.
func appendBytes(dst, v []byte) []byte {
	if v == nil {
		return codec.AppendUint(dst, 0)
	}
	return append(codec.AppendUint(dst, uint64(len(v))+1), v...)
}

// Read decodes what Append wrote. The slices of the record alias b.
func Read(b []byte) (r kernel.Record, err error) {
	rd := &codec.Reader{B: b}
	if v := rd.Byte(); rd.Err() == nil && v != Version {
		return r, fmt.Errorf("%w %d", ErrVersion, v)
	}
	rd.Int() // the expiry is among the headers, too
	r.Timestamp = rd.Int()
	r.Key, r.Value = readBytes(rd), readBytes(rd)
	n := rd.Count()
	r.Headers = make([]kernel.Header, 0, min(n, 64))
	for ; n > 0 && rd.Err() == nil; n-- {
		r.Headers = append(r.Headers, kernel.Header{Key: rd.String(), Value: readBytes(rd)})
	}
	if err := rd.Done(); err != nil {
		return kernel.Record{}, fmt.Errorf("retained message: %w", err)
	}
	return r, nil
}

func readBytes(rd *codec.Reader) []byte {
	n := rd.Uint()
	if n == 0 {
		return nil
	}
	return rd.Bytes(int(min(n-1, math.MaxInt32)))
}

// expiry reads the expiry of an encoded message.
func expiry(b []byte) int64 {
	rd := &codec.Reader{B: b}
	if rd.Byte() != Version {
		return 0
	}
	return rd.Int()
}
