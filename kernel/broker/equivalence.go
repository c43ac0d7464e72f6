package broker

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// sameQueue checks a declaration against what was declared before, in the order
// and the words that clients of queues know.
func (t *tenant) sameQueue(q *QueueSpec, old *kernel.Queue) error {
	differ := func(what, received, current string) error {
		return kernel.Errorf(kernel.CodePrecondition, "queue", q.Name,
			"inequivalent arg '%s' for queue '%s' in vhost '%s': received %s but current is %s", what, q.Name, t.name, received, current)
	}
	flag := func(v bool) string { return "'" + strconv.FormatBool(v) + "'" }
	switch {
	case q.Exclusive != old.Exclusive:
		return t.locked(q.Name)
	case q.Durable != old.Durable:
		return differ("durable", flag(q.Durable), flag(old.Durable))
	case q.AutoDelete != old.AutoDelete:
		return differ("auto_delete", flag(q.AutoDelete), flag(old.AutoDelete))
	case q.Type != old.Type:
		return differ("x-queue-type", "'"+typeName(q.Type)+"'", "'"+typeName(old.Type)+"'")
	}
	for _, name := range argumentNames(q.Arguments, old.Arguments) {
		a, b := argument(q.Arguments, name), argument(old.Arguments, name)
		if !sameArgument(a, b) && name != queueTypeArgument {
			return differ(name, beside(a, b), beside(b, a))
		}
	}
	return nil
}

// SameQueue says what is wrong with a declaration whatever its arguments mean, for
// front-ends that find fault with those: CodeAccessRefused, CodeLocked, or
// CodePrecondition if it differs from a queue that is there.
func (c *Conn) SameQueue(q QueueSpec) error {
	if q.Name == "" || kernel.IsShare(q.Name) {
		return nil
	}
	if err := c.allow(kernel.Configure, KindQueue, q.Name); err != nil {
		return err
	}
	topic, ok := c.tenant.table.Load().Topic(kernel.Plain, q.Name)
	if !ok || topic.Queue == nil {
		return nil
	}
	if err := c.usable(topic); err != nil {
		return err
	}
	q.Arguments = slices.DeleteFunc(slices.Clone(q.Arguments), func(a kernel.Argument) bool { return a.Value == nil })
	slices.SortFunc(q.Arguments, func(a, b kernel.Argument) int { return strings.Compare(a.Name, b.Name) })
	return c.tenant.sameQueue(&q, topic.Queue)
}

// queueTypeArgument is compared as QueueSpec.Type: naming the default type and
// not naming it is the same.
const queueTypeArgument = "x-queue-type"

func typeName(k kernel.QueueType) string {
	switch k {
	case kernel.Quorum:
		return "quorum"
	case kernel.Stream:
		return "stream"
	default:
		return "classic"
	}
}

// comparedFirst are the arguments that are compared before the others, in this
// order: of several that differ the first is named.
var comparedFirst = []string{
	"x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
	"x-max-length", "x-max-length-bytes", "x-overflow",
}

// argumentNames merges the names of two lists, both sorted.
func argumentNames(a, b []kernel.Argument) []string {
	var names []string
	for len(a) > 0 || len(b) > 0 {
		var name string
		switch {
		case len(b) == 0 || (len(a) > 0 && a[0].Name <= b[0].Name):
			name, a = a[0].Name, a[1:]
		default:
			name, b = b[0].Name, b[1:]
		}
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	rank := func(name string) int {
		if i := slices.Index(comparedFirst, name); i >= 0 {
			return i
		}
		return len(comparedFirst)
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

func argument(args []kernel.Argument, name string) *kernel.Argument {
	for i := range args {
		if args[i].Name == name {
			return &args[i]
		}
	}
	return nil
}

// sameArgument compares values; numbers compare as numbers.
func sameArgument(a, b *kernel.Argument) bool {
	if a == nil || b == nil {
		return a == b
	}
	if x, ok := number(a.Value); ok {
		y, ok := number(b.Value)
		return ok && x == y
	}
	if x, ok := a.Value.([]byte); ok {
		y, ok := b.Value.([]byte)
		return ok && bytes.Equal(x, y)
	}
	if _, ok := b.Value.([]byte); ok {
		return false
	}
	return a.Value == b.Value
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// describe shows a value with its type.
func describe(a *kernel.Argument) string { return beside(a, nil) }

// beside shows a value beside the one that it differs from: with its type, if that
// is not the same.
func beside(a, other *kernel.Argument) string {
	if a == nil {
		return "none"
	}
	kind, text := "", ""
	switch v := a.Value.(type) {
	case string:
		kind, text = "longstr", v
	case bool:
		kind, text = "bool", strconv.FormatBool(v)
	case int64:
		if kind = "signedint"; v != int64(int32(v)) {
			kind = "long"
		}
		text = strconv.FormatInt(v, 10)
	case float64:
		kind, text = "double", strconv.FormatFloat(v, 'g', -1, 64)
	case nil:
		kind, text = "void", "undefined"
	default:
		return "a value of another type"
	}
	if other != nil && reflect.TypeOf(other.Value) == reflect.TypeOf(a.Value) {
		return "'" + text + "'"
	}
	return fmt.Sprintf("the value '%s' of type '%s'", text, kind)
}
