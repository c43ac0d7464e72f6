package route

import (
	"fmt"
	"math"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// spreading is a table with an exchange x of a type and queues q0.. bound to it
// with the given keys.
func spreading(kind kernel.ExchangeType, keys []string, args ...kernel.Argument) *Table {
	table := New("/").PutExchange(kernel.Exchange{Name: "x", Type: kind, Arguments: args})
	for i, key := range keys {
		name := fmt.Sprint("q", i)
		table = table.PutTopic(&Topic{Topic: &kernel.Topic{ID: kernel.TopicID{byte(i), 1}, Name: name}})
		table, _ = table.Bind(kernel.Binding{Exchange: "x", Queue: name, Key: key})
	}
	return table
}

func chosen(t *testing.T, table *Table, msg Message) string {
	t.Helper()
	var m Match
	if msg.Record == nil {
		msg.Record = &kernel.Record{}
	}
	if !table.Route(&m, "x", &msg) || len(m.Topics) != 1 {
		t.Fatalf("%q reaches %d queues", msg.Key, len(m.Topics))
	}
	return m.Topics[0].Name
}

// TestConsistentHash: each queue gets its share by weight, and one that comes
// takes only what it gets.
func TestConsistentHash(t *testing.T) {
	const n = 40_000
	weights := []string{"1", "1", "2", "4"}
	table := spreading(kernel.ConsistentHash, weights)
	more := spreading(kernel.ConsistentHash, append(weights, "2"))
	got, moved := map[string]int{}, 0
	for i := range n {
		key := fmt.Sprint("key-", i)
		q := chosen(t, table, Message{Key: key})
		got[q]++
		if q2 := chosen(t, more, Message{Key: key}); q2 != q {
			if moved++; q2 != "q4" {
				t.Fatalf("%s moved from %s to %s, which is not the new queue", key, q, q2)
			}
		}
	}
	near := func(what string, got int, share float64) {
		sigma := math.Sqrt(n * share * (1 - share))
		if d := math.Abs(float64(got) - n*share); d > 4*sigma {
			t.Errorf("%s: %d of %d, want %.0f", what, got, n, n*share)
		}
	}
	near("q0", got["q0"], 1.0/8)
	near("q1", got["q1"], 1.0/8)
	near("q2", got["q2"], 2.0/8)
	near("q3", got["q3"], 4.0/8)
	near("moved", moved, 2.0/10)
	// It is the same for ever, whatever order the bindings were made in.
	if q := chosen(t, table, Message{Key: "key-1"}); q != "q3" {
		t.Errorf("key-1 belongs to %s now", q)
	}
}

func TestHashOf(t *testing.T) {
	with := func(headers ...kernel.Header) Message {
		return Message{Key: fmt.Sprint(len(headers)), Record: &kernel.Record{Headers: headers}}
	}
	for _, tc := range []struct{ arg, value, header string }{
		{kernel.ArgHashHeader, "h", "h"}, {kernel.ArgHashProperty, "message_id", kernel.HeaderMessageID},
		{kernel.ArgHashProperty, "correlation_id", kernel.HeaderCorrelationID}, {kernel.ArgHashProperty, "timestamp", kernel.HeaderTimestamp},
	} {
		table := spreading(kernel.ConsistentHash, []string{"1", "1", "1"}, kernel.Argument{Name: tc.arg, Value: tc.value})
		seen := map[string]bool{}
		for i := range 100 {
			h := kernel.Header{Key: tc.header, Value: fmt.Append(nil, i)}
			q := chosen(t, table, with(h))
			if q != chosen(t, table, with(h, kernel.Header{Key: "other"})) {
				t.Errorf("%s: it depends on something else", tc.value)
			}
			seen[q] = true
		}
		if len(seen) != 3 {
			t.Errorf("%s: %v", tc.value, seen)
		}
		if chosen(t, table, with()) != chosen(t, table, Message{Key: "k"}) {
			t.Errorf("%s: without it the key counts", tc.value)
		}
	}
}

func TestOneOfMany(t *testing.T) {
	for _, kind := range []kernel.ExchangeType{kernel.Random, kernel.LocalRandom, kernel.ModulusHash} {
		table := spreading(kind, []string{"", "", ""})
		seen := map[string]int{}
		for i := range 3000 {
			seen[chosen(t, table, Message{Key: fmt.Sprint(i), Draw: uint64(i)})]++
		}
		for q, n := range seen {
			if len(seen) != 3 || n < 850 || n > 1150 {
				t.Errorf("%s: %s got %d of 3000", kind, q, n)
			}
		}
		var m Match
		if !spreading(kind, nil).Route(&m, "x", &Message{Record: &kernel.Record{}}) || len(m.Topics) > 0 {
			t.Errorf("%s without bindings", kind)
		}
	}
}

// BenchmarkHash picks one of a hundred queues.
func BenchmarkHash(b *testing.B) {
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = "1"
	}
	table := spreading(kernel.ConsistentHash, keys)
	var m Match
	msg := Message{Record: &kernel.Record{}, Key: "some.routing.key"}
	b.ReportAllocs()
	for b.Loop() {
		table.Route(&m, "x", &msg)
	}
}

// BenchmarkHeaders compares four headers with ten bindings of two arguments.
func BenchmarkHeaders(b *testing.B) {
	table := New("/")
	for i := range 10 {
		name := fmt.Sprint("q", i)
		table = table.PutTopic(&Topic{Topic: &kernel.Topic{ID: kernel.TopicID{byte(i), 1}, Name: name}})
		table, _ = table.Bind(kernel.Binding{Exchange: "amq.headers", Queue: name, Arguments: []kernel.Argument{{Name: "type", Value: "a"}, {Name: "n", Value: fmt.Sprint(i)}}})
	}
	r := &kernel.Record{Headers: []kernel.Header{{Key: "mq.exchange", Value: []byte("x")}, {Key: "type", Value: []byte("a")}, {Key: "n", Value: []byte("3")}, {Key: "z", Value: []byte("z")}}}
	var m Match
	var msg Message
	b.ReportAllocs()
	for b.Loop() {
		msg.Reset()
		msg.Record = r
		if table.Route(&m, "amq.headers", &msg); len(m.Topics) != 1 {
			b.Fatal(len(m.Topics))
		}
	}
}
