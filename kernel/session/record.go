// Package session is how sessions are written down: one record per session and
// one per subscription, in the keyed state of a placement group. It is pure.
// docs/formats/session.md describes the records.
package session

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Version is the first byte of a subscription's record, and of those of
// sessions without an owner.
const Version = 1

// versionOwned is the first byte of the record of a session with an owner.
const versionOwned = 2

// ErrVersion matches the error of a record of a version not known here.
var ErrVersion = errors.New("session: unknown version")

// The keys are prefix, tenant, NUL, client id, and for subscriptions NUL and
// the filter. None of these contains a NUL.
const (
	sessionPrefix      = "s/"
	subscriptionPrefix = "u/"
)

// SessionPrefix and SubscriptionPrefix begin the keys of all records of their
// kind.
func SessionPrefix() []byte { return []byte(sessionPrefix) }

// SubscriptionPrefix begins the keys of all subscriptions.
func SubscriptionPrefix() []byte { return []byte(subscriptionPrefix) }

// SessionKey is the key of a session's record.
func SessionKey(tenant, client string) []byte {
	return []byte(sessionPrefix + tenant + "\x00" + client)
}

// SubscriptionKey is the key of a subscription's record.
func SubscriptionKey(tenant, client, filter string) []byte {
	return []byte(subscriptionPrefix + tenant + "\x00" + client + "\x00" + filter)
}

// ParseSessionKey takes apart what SessionKey made.
func ParseSessionKey(key []byte) (tenant, client string, err error) {
	rest, ok := strings.CutPrefix(string(key), sessionPrefix)
	tenant, client, cut := strings.Cut(rest, "\x00")
	if !ok || !cut {
		return "", "", fmt.Errorf("session key %q: %w", key, codec.ErrCorrupt)
	}
	return tenant, client, nil
}

// ParseSubscriptionKey takes apart what SubscriptionKey made.
func ParseSubscriptionKey(key []byte) (tenant, client, filter string, err error) {
	rest, ok := strings.CutPrefix(string(key), subscriptionPrefix)
	parts := strings.SplitN(rest, "\x00", 3)
	if !ok || len(parts) != 3 {
		return "", "", "", fmt.Errorf("subscription key %q: %w", key, codec.ErrCorrupt)
	}
	return parts[0], parts[1], parts[2], nil
}

// Record is what is kept of a session beside its subscriptions.
type Record struct {
	Expiry    time.Duration // after its connection has ended; kernel.SessionForever = never
	ExpiresAt time.Time     // set once it has been away for a while, else zero
	Owner     string        // the user it belongs to; "" = of a record of version 1
}

// Append appends the encoding of r.
func (r Record) Append(b []byte) []byte {
	version := byte(Version)
	if r.Owner != "" {
		version = versionOwned
	}
	b = codec.AppendInt(append(b, version), int64(r.Expiry))
	var at int64
	if !r.ExpiresAt.IsZero() {
		at = r.ExpiresAt.UnixMilli()
	}
	if b = codec.AppendInt(b, at); r.Owner != "" {
		b = codec.AppendString(b, r.Owner)
	}
	return b
}

// ReadRecord decodes what Append wrote.
func ReadRecord(b []byte) (Record, error) {
	rd, version, err := reader(b, versionOwned)
	if err != nil {
		return Record{}, err
	}
	r := Record{Expiry: time.Duration(rd.Int())}
	if at := rd.Int(); at != 0 {
		r.ExpiresAt = time.UnixMilli(at)
	}
	if version >= versionOwned {
		r.Owner = rd.String()
	}
	if err := rd.Done(); err != nil {
		return Record{}, fmt.Errorf("session record: %w", err)
	}
	return r, nil
}

// Subscription is what is kept of a subscription; its filter is in the key.
type Subscription struct {
	kernel.Subscription
	// Grouped says that it reads through a share group, not from memory.
	Grouped bool
}

// Append appends the encoding of s.
func (s Subscription) Append(b []byte) []byte {
	b = append(b, Version, s.QoS, s.Options)
	b = codec.AppendFlags(b, s.Grouped)
	return codec.AppendUint(b, uint64(s.Identifier))
}

// ReadSubscription decodes what Append wrote.
func ReadSubscription(filter string, b []byte) (Subscription, error) {
	rd, _, err := reader(b, Version)
	if err != nil {
		return Subscription{}, err
	}
	s := Subscription{Subscription: kernel.Subscription{Filter: filter, QoS: rd.Byte(), Options: rd.Byte()}}
	rd.Flags(&s.Grouped)
	s.Identifier = uint32(rd.Uint())
	if err := rd.Done(); err != nil {
		return Subscription{}, fmt.Errorf("subscription record: %w", err)
	}
	return s, nil
}

// reader reads the version, which is at most newest.
func reader(b []byte, newest byte) (r *codec.Reader, version byte, err error) {
	r = &codec.Reader{B: b}
	version = r.Byte()
	if r.Err() == nil && (version < Version || version > newest) {
		return nil, 0, fmt.Errorf("%w %d", ErrVersion, version)
	}
	return r, version, nil
}
