package session

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/metasvc/codec"
)

// The key of a will is prefix, tenant, NUL, client id.
const willPrefix = "w/"

// WillPrefix begins the keys of all wills.
func WillPrefix() []byte { return []byte(willPrefix) }

// WillKey is the key of a session's will.
func WillKey(tenant, client string) []byte {
	return []byte(willPrefix + tenant + "\x00" + client)
}

// OwedWillKey is the key of a will that is to be published while the session has another
// one already: that of a client id which nobody can have.
func OwedWillKey(tenant, client string, epoch uint64) []byte {
	return WillKey(tenant, client+"\x00"+strconv.FormatUint(epoch, 16))
}

// ParseWillKey takes apart what WillKey made.
func ParseWillKey(key []byte) (tenant, client string, err error) {
	rest, ok := strings.CutPrefix(string(key), willPrefix)
	tenant, client, cut := strings.Cut(rest, "\x00")
	if !ok || !cut {
		return "", "", fmt.Errorf("will key %q: %w", key, codec.ErrCorrupt)
	}
	return tenant, client, nil
}

// Will is what is kept of the message that a session leaves behind.
type Will struct {
	User      string // who publishes it
	Anonymous bool   // he was let in without credentials
	Protocol  string // of the connection
	Topic     string
	Retain    bool
	Delay     time.Duration // for the session to go on
	Expiry    time.Duration // of the message, from its publication; 0 = never
	DueAt     time.Time     // when it is published; zero while the connection is there
	Message   []byte        // as package retain encodes it
}

// Append appends the encoding of w.
func (w Will) Append(b []byte) []byte {
	b = codec.AppendFlags(append(b, Version), w.Anonymous, w.Retain)
	b = codec.AppendString(b, w.User)
	b = codec.AppendString(b, w.Protocol)
	b = codec.AppendString(b, w.Topic)
	b = codec.AppendInt(b, int64(w.Delay))
	b = codec.AppendInt(b, int64(w.Expiry))
	var at int64
	if !w.DueAt.IsZero() {
		at = w.DueAt.UnixMilli()
	}
	return codec.AppendString(codec.AppendInt(b, at), string(w.Message))
}

// ReadWill decodes what Append wrote.
func ReadWill(b []byte) (w Will, err error) {
	rd, _, err := reader(b, Version)
	if err != nil {
		return w, err
	}
	rd.Flags(&w.Anonymous, &w.Retain)
	w.User, w.Protocol, w.Topic = rd.String(), rd.String(), rd.String()
	w.Delay, w.Expiry = time.Duration(rd.Int()), time.Duration(rd.Int())
	if at := rd.Int(); at != 0 {
		w.DueAt = time.UnixMilli(at)
	}
	w.Message = []byte(rd.String())
	if err := rd.Done(); err != nil {
		return Will{}, fmt.Errorf("will record: %w", err)
	}
	return w, nil
}
