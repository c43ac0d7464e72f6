package amqp

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// The arguments that are about the log behind a queue.
const (
	argRetention      = "x-retention"
	argRetentionBytes = "x-retention-bytes"
	argStartOffset    = "x-start-offset"
	argDedupWindow    = "x-deduplication-window"
)

// logArgument puts such an argument into the spec and says what is wrong with it, ""
// if nothing. A queue has a log, of which a further group reads a part: the first has
// a retention, the second a place where it begins.
func logArgument(a wire.Field, spec *broker.QueueSpec, args wire.Table) (wrong string) {
	if further := isFurther(spec.Name); further != (a.Name == argStartOffset) {
		if further {
			return "the messages are kept by the topic of a share address"
		}
		return "only a further share group of a topic has it"
	}
	if a.Name == argStartOffset {
		spec.Start, wrong = startOffset(a.Value)
		return wrong
	}
	if a.Name == argDedupWindow {
		return checkTTL(a.Value, spec, args)
	}
	if spec.Retention == nil {
		r := kernel.RetainDay // of what is not said
		if _, ok := lookup(args, argRetention); ok || !spec.Durable || spec.Exclusive {
			r = kernel.Retention{}
		}
		spec.Retention = &r
	}
	if a.Name == argRetentionBytes {
		spec.Retention.Bytes, wrong = wholeNumber(a.Value)
		switch n := spec.Retention.Bytes; {
		case n < 0:
			return fmt.Sprintf("{value_negative,%d}", n)
		case n == 0 && wrong == "":
			return "{value_zero,0}"
		}
		return wrong
	}
	age, ok := retention(a.Value)
	if !ok {
		return "it is milliseconds, 0 (delete when settled) or a time such as '36h' or '7D'"
	}
	spec.Retention.Age, spec.Retention.Delete = age, age == 0
	return ""
}

// isFurther reports whether a name is that of a share group that is not a queue's
// own.
func isFurther(name string) bool {
	if !kernel.IsShare(name) {
		return false
	}
	addr, create, err := kernel.ParseShare("", name)
	return err == nil && create && !addr.IsOwn()
}

// startOffset reads where a group begins, spelled as RabbitMQ's x-stream-offset: first,
// last, next, an offset, a timestamp (of seconds), or a time such as '7D' before now.
func startOffset(v any) (p kernel.Position, wrong string) {
	switch v := v.(type) {
	case string:
		switch v {
		case "first":
			return kernel.Position{Kind: kernel.AtStart}, ""
		case "next":
			return kernel.Position{Kind: kernel.AtEnd}, ""
		case "last":
			return kernel.Position{Kind: kernel.AtLast}, ""
		}
		age, ok := duration(v)
		if !ok {
			return p, "it is first, last, next, an offset, a timestamp or a time such as '7D'"
		}
		return kernel.Position{Kind: kernel.AtTime, Value: max(time.Now().Add(-age).UnixMilli(), 0)}, ""
	case wire.Timestamp:
		if v > math.MaxInt64/1000 {
			return p, fmt.Sprintf("{value_too_large,%d}", uint64(v))
		}
		return kernel.Position{Kind: kernel.AtTime, Value: int64(v) * 1000}, ""
	}
	n, ok := argument(v).(int64)
	switch {
	case !ok:
		return p, fmt.Sprintf("{unacceptable_type,%s}", typeOf(v))
	case n < 0:
		return p, fmt.Sprintf("{value_negative,%d}", n)
	}
	return kernel.Position{Kind: kernel.AtOffset, Value: n}, ""
}

// retention reads a time: a number is milliseconds, as in RabbitMQ's other
// arguments that are times; a text is a Go duration or, as in x-max-age, a
// number with one of the units Y, M, D, h, m, s.
func retention(v any) (d time.Duration, ok bool) {
	switch v := argument(v).(type) {
	case int64:
		if v < 0 || v > math.MaxInt64/int64(time.Millisecond) {
			return 0, false
		}
		return time.Duration(v) * time.Millisecond, true
	case string:
		return duration(v)
	}
	return 0, false
}

const day = 24 * time.Hour

var ageUnits = map[byte]time.Duration{'Y': 365 * day, 'M': 30 * day, 'D': day}

func duration(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	if unit, ok := ageUnits[s[len(s)-1]]; ok {
		n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
		return time.Duration(n) * unit, err == nil && n >= 0 && n <= int64(math.MaxInt64/unit)
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}
