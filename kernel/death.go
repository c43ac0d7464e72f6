package kernel

import (
	"bytes"
	"encoding/json"
)

// Headers that say how a record died, written by the broker only: a client's
// header of such a name is kept under HeaderUser.
const (
	// HeaderDeath is UTF-8 JSON, an array of Death, newest first.
	HeaderDeath = "x-death"

	HeaderFirstDeathQueue    = "x-first-death-queue"
	HeaderFirstDeathReason   = "x-first-death-reason"
	HeaderFirstDeathExchange = "x-first-death-exchange"
	HeaderLastDeathQueue     = "x-last-death-queue"
	HeaderLastDeathReason    = "x-last-death-reason"
	HeaderLastDeathExchange  = "x-last-death-exchange"

	// HeaderTTL is the time to live as the publisher gave it, in milliseconds,
	// decimal; beside HeaderExpiresAt.
	HeaderTTL = "mq.ttl"
)

// IsDeathHeader reports whether a header name is one of those that only the
// broker writes about dead records.
func IsDeathHeader(name string) bool {
	switch name {
	case HeaderDeath, HeaderFirstDeathQueue, HeaderFirstDeathReason, HeaderFirstDeathExchange,
		HeaderLastDeathQueue, HeaderLastDeathReason, HeaderLastDeathExchange:
		return true
	}
	return false
}

// DeathReason is why a record died.
type DeathReason string

// The reasons.
const (
	DiedRejected DeathReason = "rejected"       // refused by a member
	DiedExpired  DeathReason = "expired"        // its time was over
	DiedMaxLen   DeathReason = "maxlen"         // its queue was too long
	DiedLimit    DeathReason = "delivery_limit" // it came back too often
)

// Death is how often a record died in one queue for one reason.
type Death struct {
	Queue       string      `json:"queue"`
	Reason      DeathReason `json:"reason"`
	Count       int64       `json:"count"`
	Time        int64       `json:"time"` // of the first, seconds since 1970
	Exchange    string      `json:"exchange"`
	RoutingKeys []string    `json:"routing-keys"`
	// Expiration is the time to live that the record lost when it died first, in
	// milliseconds.
	Expiration string `json:"original-expiration,omitempty"`
	// Cut says that older deaths are not listed.
	Cut bool `json:"cut,omitempty"`
}

// MaxDeaths and MaxDeathBytes bound what is remembered of a record's deaths; the
// oldest go, and the last that stays says so.
const (
	MaxDeaths     = 1024
	MaxDeathBytes = 64 << 10 // about, as JSON
)

// size is about how many bytes a death takes up.
func (d *Death) size() int {
	n := 150 + len(d.Queue) + len(d.Exchange) + len(d.Expiration)
	for _, k := range d.RoutingKeys {
		n += 3 + len(k)
	}
	return n
}

// ReadDeaths reads the value of HeaderDeath. It returns nil for what is not one.
func ReadDeaths(value []byte) []Death {
	var list []Death
	if len(value) == 0 || json.Unmarshal(value, &list) != nil || len(list) > MaxDeaths {
		return nil
	}
	return list
}

// AddDeath puts a death in front of list, joined with the earlier one of the
// same queue and reason if there is one.
func AddDeath(list []Death, d Death) []Death {
	d.Count = 1
	cut := false
	out := make([]Death, 1, len(list)+1)
	for _, old := range list {
		cut, old.Cut = cut || old.Cut, false
		if old.Queue == d.Queue && old.Reason == d.Reason {
			old.Count++
			d = old
			continue
		}
		out = append(out, old)
	}
	out[0] = d
	size, n := 0, 0
	for n < min(len(out), MaxDeaths) {
		if size += out[n].size(); size > MaxDeathBytes && n > 0 {
			break
		}
		n++
	}
	out[n-1].Cut = cut || n < len(out)
	return out[:n]
}

// DeathCycle reports whether a record with these deaths must not come to queue
// once more: it died there, and since then nobody has refused it anywhere. If
// that may be so and is not remembered, it counts as one.
func DeathCycle(list []Death, queue string) bool {
	for _, d := range list {
		if d.Reason == DiedRejected {
			return false
		}
		if d.Queue == queue || d.Cut {
			return true
		}
	}
	return false
}

// AppendDeaths appends the value of HeaderDeath to dst.
func AppendDeaths(dst []byte, list []Death) []byte {
	b := bytes.NewBuffer(dst)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(list) // strings and numbers only
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
