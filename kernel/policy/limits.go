package policy

import (
	"math"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Limits returns the limits of a queue: own are those of its declaration, args
// the declaration itself, to tell what it says from what is a default. Of
// numbers the smaller one holds; for the others the declaration comes before the
// policy.
func (e Effective) Limits(own kernel.Limits, args []kernel.Argument) kernel.Limits {
	for _, a := range e.Definition() {
		declared := slices.ContainsFunc(args, func(b kernel.Argument) bool { return b.Name == "x-"+a.Name })
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

// number brings in a setting of which the smaller one holds.
func number(l *kernel.Limits, name string, v int64, declared bool) {
	switch name {
	case MessageTTL:
		if ttl := milliseconds(v); l.MessageTTL < 0 || ttl < l.MessageTTL {
			l.MessageTTL = ttl
		}
	case Expires:
		if expires := milliseconds(v); l.Expires <= 0 || expires < l.Expires {
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

// milliseconds makes a duration, cut at the longest there is.
func milliseconds(ms int64) time.Duration {
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
	}
}

// Retention returns the retention of a queue's settled records: own is that of
// its declaration.
func (e Effective) Retention(own kernel.Retention) kernel.Retention {
	if age, ok := Value(e.Policy, RetentionAge); ok {
		if ms, ok := age.(int64); ok {
			own = kernel.Retention{Age: milliseconds(ms), Delete: ms == 0}
		}
	}
	return own
}
