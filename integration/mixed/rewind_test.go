package mixed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// rewound runs `trivium group rewind` and returns what it says, and its exit code last.
func rewound(t *testing.T, b *harness.Broker, group, to string) string {
	t.Helper()
	line := fmt.Sprintf("'%s' group rewind '%s' '%s' --url http://%s 2>&1; echo exit $?", harness.Binary(t), group, to, b.HTTP)
	return harness.Client(t, harness.Patience, "sh", "-c", line)
}

// takeAll takes and acknowledges what a queue has.
func takeAll(t *testing.T, b *harness.Broker, queue string) string {
	t.Helper()
	_, ch := b.DialAMQP(t)
	var got []string
	for {
		d, ok, err := ch.Get(queue, false)
		harness.Must(t, err)
		if !ok {
			harness.Must(t, ch.Close()) // all acknowledgements have arrived
			return strings.Join(got, " ")
		}
		harness.Must(t, d.Ack(false))
		got = append(got, string(d.Body))
	}
}

// TestGroupRewind: messages that AMQP consumers have acknowledged come again after a
// rewind to an offset or a time, also after a crash, and only those; a consumer that
// is there goes on from there.
func TestGroupRewind(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "jobs")
	harness.Must(t, ch.Confirm(false))
	var mark time.Time
	for i := range 10 {
		if i == 5 { // the clock stands between those before and those after
			mark = time.Now().Add(3 * time.Millisecond)
			harness.Wait(t, harness.Patience, "the clock", func() bool { return time.Since(mark) > 3*time.Millisecond })
		}
		harness.Confirmed(t, ch, "", "jobs", amqp.Publishing{Body: fmt.Appendf(nil, "m%d", i), DeliveryMode: amqp.Persistent})
	}
	const all = "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9"
	if got := takeAll(t, b, "jobs"); got != all {
		t.Fatalf("at first: %s", got)
	}
	for _, c := range []struct{ to, want string }{
		{"7", "m7 m8 m9"}, {mark.UTC().Format(time.RFC3339Nano), "m5 m6 m7 m8 m9"}, {"start", all}, {"end", ""}, {"9", "m9"},
	} {
		if out := rewound(t, b, "jobs", c.to); !strings.HasSuffix(out, "exit 0\n") {
			t.Errorf("rewind to %s: %s", c.to, out)
		}
		if got := takeAll(t, b, "jobs"); got != c.want {
			t.Errorf("after a rewind to %s: %s", c.to, got)
		}
	}
	for _, c := range []struct{ group, to, want string }{{"jobs", "yesterday", "it is start, end, an offset or a time"}, {"none", "start", "exit 1"}} {
		if out := rewound(t, b, c.group, c.to); !strings.Contains(out, c.want) || !strings.HasSuffix(out, "exit 1\n") {
			t.Errorf("rewind %s to %s: %s", c.group, c.to, out)
		}
	}

	if out := rewound(t, b, "jobs", "8"); !strings.HasSuffix(out, "exit 0\n") {
		t.Error(out)
	}
	b.Kill()
	b.Run()
	if got := takeAll(t, b, "jobs"); got != "m8 m9" {
		t.Errorf("after a crash: %s", got)
	}
	_, ch = b.DialAMQP(t)
	from, err := ch.Consume("jobs", "", true, false, false, false, nil)
	harness.Must(t, err)
	rewound(t, b, "jobs", "6")
	for _, want := range []string{"m6", "m7", "m8", "m9"} {
		if d := harness.Receive(t, from); string(d.Body) != want {
			t.Errorf("a consumer that stays gets %s, want %s", d.Body, want)
		}
	}
}
