package amqp

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestStartOffset: a further group of a topic begins where its declaration says; what
// was settled before for the queue is there for it.
func TestStartOffset(t *testing.T) {
	ownOnly(t)
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	must(t, ch.Confirm(false))
	harness.Declare(t, ch, "q")
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 10 {
		confirmed(t, ch, "", "q", amqp091.Publishing{Body: fmt.Append(nil, i), DeliveryMode: 2, Timestamp: day.AddDate(0, 0, i)})
	}
	for range 10 {
		if _, ok, err := ch.Get("q", true); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	cases := []struct {
		at    any
		first int
	}{
		{"first", 0}, {"last", 9}, {"next", 10}, {int32(3), 3}, {int64(1000), 10}, {day.AddDate(0, 0, 5), 5},
		{day.AddDate(1, 0, 0), 10}, {"100Y", 0}, {"0s", 10}, {nil, 10},
	}
	arguments := func(at any) args {
		if at == nil {
			return nil
		}
		return args{"x-start-offset": at}
	}
	for i, tc := range cases {
		name := fmt.Sprintf("$share/g%d/q", i)
		for range 2 { // the second is equivalent
			q, err := ch.QueueDeclare(name, true, false, false, false, arguments(tc.at))
			if must(t, err); q.Messages != 10-tc.first {
				t.Errorf("%v: %d messages, want %d", tc.at, q.Messages, 10-tc.first)
			}
		}
	}
	confirmed(t, ch, "", "q", amqp091.Publishing{Body: []byte("10"), DeliveryMode: 2})
	b.Kill()
	b.Run()
	_, ch = b.DialAMQP(t)
	for i, tc := range cases {
		name := fmt.Sprintf("$share/g%d/q", i)
		_, err := ch.QueueDeclare(name, true, false, false, false, arguments(tc.at))
		must(t, err)
		d, ok, err := ch.Get(name, true)
		if must(t, err); !ok || string(d.Body) != fmt.Sprint(tc.first) {
			t.Errorf("%v: %q, want %d", tc.at, d.Body, tc.first)
		}
	}
}

// TestStartOffsetRefused: what cannot be, and what differs from the group that is
// there, is 406.
func TestStartOffsetRefused(t *testing.T) {
	ownOnly(t)
	c, ch := shared.DialAMQP(t)
	q := newQueue(t, ch)
	group := "$share/" + name("group") + "/" + q
	_, err := ch.QueueDeclare(group, true, false, false, false, args{"x-start-offset": int32(3)})
	must(t, err)
	client := shared.DialMQTT(t, name("client"))
	made := "$share/" + name("group") + "/" + q
	harness.Done(t, client.Subscribe(made, 1, nil))
	share := "$share/" + name("group") + "/" + q
	for _, tc := range []struct {
		queue string
		args  args
		want  string
	}{
		{share, args{"x-start-offset": "soon"}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': it is first, last, next, an offset, a timestamp or a time such as '7D'"},
		{share, args{"x-start-offset": int32(-1)}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': {value_negative,-1}"},
		{share, args{"x-start-offset": true}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': {unacceptable_type,bool}"},
		{share, args{"x-start-offset": 1.5}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': {unacceptable_type,double}"},
		{share, args{"x-retention": "1h"}, "invalid arg 'x-retention' for queue '%s' in vhost '/': the messages are kept by the topic of a share address"},
		{share, args{"x-retention-bytes": int32(1)}, "invalid arg 'x-retention-bytes' for queue '%s' in vhost '/': the messages are kept by the topic of a share address"},
		{name("queue"), args{"x-start-offset": "first"}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': only a further share group of a topic has it"},
		{"$queue/" + q, args{"x-start-offset": "first"}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': only a further share group of a topic has it"},
		{made, args{"x-start-offset": "first"}, "invalid arg 'x-start-offset' for queue '%s' in vhost '/': a subscription has made the group already"},
		{group, args{"x-start-offset": int32(4)}, "inequivalent arg 'x-start-offset' for queue '%s' in vhost '/': received '4' but current is '3'"},
		{group, nil, "inequivalent arg 'x-start-offset' for queue '%s' in vhost '/': received none but current is the value '3' of type 'signedint'"},
	} {
		_, err := channel(t, c).QueueDeclare(tc.queue, true, false, false, false, tc.args)
		want := "PRECONDITION_FAILED - " + fmt.Sprintf(tc.want, tc.queue)
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 || e.Reason != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// TestRetentionBytes: of what is settled as many bytes stay as the declaration says;
// other values are 406, and so is another one in a further declaration.
func TestRetentionBytes(t *testing.T) {
	ownOnly(t)
	c, ch := shared.DialAMQP(t)
	must(t, ch.Confirm(false))
	q := name("queue")
	for range 2 {
		_, err := ch.QueueDeclare(q, true, false, false, false, args{"x-retention-bytes": int64(100 << 10), "x-retention": "7D"})
		must(t, err)
	}
	for range 30 {
		confirmed(t, ch, "", q, amqp091.Publishing{Body: make([]byte, 20<<10), DeliveryMode: 2})
		if _, ok, err := ch.Get(q, true); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	// A group that begins with the first message holds them all: it is made afterwards.
	log := kadm.NewClient(shared.DialKafka(t))
	until(t, "the old ones go", func() bool {
		starts, err := log.ListStartOffsets(t.Context(), q)
		must(t, err)
		start, ok := starts.Lookup(q, 0)
		return ok && start.Offset >= 25
	})
	g, err := ch.QueueDeclare("$share/g/"+q, true, false, false, false, args{"x-start-offset": "first"})
	must(t, err)
	if g.Messages < 3 || g.Messages > 5 {
		t.Errorf("%d messages are left", g.Messages)
	}
	for _, tc := range []struct {
		v    any
		want string
	}{
		{int32(0), "invalid arg 'x-retention-bytes' for queue '%s' in vhost '/': {value_zero,0}"},
		{int32(-1), "invalid arg 'x-retention-bytes' for queue '%s' in vhost '/': {value_negative,-1}"},
		{"1G", `invalid arg 'x-retention-bytes' for queue '%s' in vhost '/': "expected integer, got longstr"`},
	} {
		n := name("queue")
		_, err := channel(t, c).QueueDeclare(n, true, false, false, false, args{"x-retention-bytes": tc.v})
		want := "PRECONDITION_FAILED - " + fmt.Sprintf(tc.want, n)
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 || e.Reason != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	_, err = channel(t, c).QueueDeclare(q, true, false, false, false, args{"x-retention-bytes": int64(1), "x-retention": "7D"})
	want := fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg 'x-retention-bytes' for queue '%s' in vhost '/': received '1' but current is '102400'", q)
	if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 || e.Reason != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}
