package policy

import (
	"math"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Limits returns the limits of a queue: own are those of its declaration, kq the
// declaration itself, to tell what it says from what is a default. Of numbers
// the smaller one holds; for the others the declaration comes before the policy.
// Settings that the queue's type does not have are left out.
func (e Effective) Limits(own kernel.Limits, kq *kernel.Queue) kernel.Limits {
	for _, a := range e.Definition() {
		if !has(kq.Type, a) {
			continue
		}
		declared := slices.ContainsFunc(kq.Arguments, func(b kernel.Argument) bool { return b.Name == "x-"+a.Name })
		switch v := a.Value.(type) {
		case int64:
			number(&own, a.Name, v, declared)
		case string:
			if !declared {
				choice(&own, a.Name, v)
			}
		}
	}
	return own
}

// has reports whether queues of a type have a setting.
func has(t kernel.QueueType, a kernel.Argument) bool {
	switch a.Name {
	case DeliveryLimit, DeadLetterStrategy:
		return t == kernel.Quorum
	case Overflow:
		return t == kernel.Classic || t == kernel.Quorum && a.Value != "reject-publish-dlx"
	}
	return t != kernel.Stream
}

// number brings in a setting of which the smaller one holds.
func number(l *kernel.Limits, name string, v int64, declared bool) {
	switch name {
	case MessageTTL:
		if ttl := Milliseconds(v); l.MessageTTL < 0 || ttl < l.MessageTTL {
			l.MessageTTL = ttl
		}
	case Expires:
		if expires := Milliseconds(v); l.Expires <= 0 || expires < l.Expires {
			l.Expires = expires
		}
	case MaxLength:
		l.MaxLength = smaller(l.MaxLength, v)
	case MaxLengthBytes:
		l.MaxBytes = smaller(l.MaxBytes, v)
	case DeliveryLimit:
		limit := int(max(kernel.Unlimited, min(v, math.MaxInt32)))
		if !declared || limit >= 0 && (l.DeliveryLimit < 0 || limit < l.DeliveryLimit) {
			l.DeliveryLimit = limit // it may raise the default of the queue's type
		}
	}
}

// smaller returns the smaller of two limits, of which negative ones are none.
func smaller(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// Milliseconds makes a duration, cut at the longest there is.
func Milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func choice(l *kernel.Limits, name, v string) {
	switch name {
	case Overflow:
		l.Overflow, _ = OverflowOf(v)
	case DeadLetterExchange:
		l.DeadLetter, l.DeadLetterExchange = true, v
	case DeadLetterKey:
		l.DeadLetterKey = &v
	case DeadLetterStrategy:
		l.AtLeastOnce = v == "at-least-once"
	}
}

// Retention returns the retention of a queue's settled records: own is that of
// its declaration, age and bytes say what of it is no default. Of two that were
// asked for the smaller one holds, for how long ids are remembered as well.
func (e Effective) Retention(own kernel.Retention, age, bytes bool) kernel.Retention {
	if v, ok := Value(e.Policy, DedupWindow); ok {
		if ms, _ := v.(int64); own.Dedup == 0 || Milliseconds(ms) < own.Dedup {
			own.Dedup = Window(ms)
		}
	}
	if v, ok := Value(e.Policy, RetentionAge); ok {
		if ms, _ := v.(int64); ms == 0 {
			return kernel.Retention{Delete: true, Dedup: own.Dedup}
		} else if d := Milliseconds(ms); !age || !own.Delete && (own.Age == 0 || d < own.Age) {
			own.Delete, own.Age = false, d
		}
	}
	if v, ok := Value(e.Policy, RetentionBytes); ok && !own.Delete {
		if n, _ := v.(int64); !bytes || own.Bytes == 0 || n < own.Bytes {
			own.Bytes = n
		}
	}
	return own
}

// Window makes Retention.Dedup of milliseconds, of which 0 is off.
func Window(ms int64) time.Duration {
	if ms == 0 {
		return -1
	}
	return Milliseconds(ms)
}
