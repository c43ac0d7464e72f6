package broker

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// damaged is a log of damage on a clock that the test moves.
type damaged struct {
	damages
	out bytes.Buffer
	log zerolog.Logger
	at  time.Time
}

func newDamaged() *damaged {
	d := &damaged{at: time.Unix(1000, 0)}
	d.log = zerolog.New(&d.out)
	d.now = func() time.Time { return d.at }
	return d
}

// meets says that offsets cannot be read, and checks whether they are lost.
func (d *damaged) meets(t *testing.T, topic *kernel.Topic, bad placement.Damage, lost bool) {
	t.Helper()
	if got := d.met(&d.log, topic, 2, bad, false); got != lost {
		t.Errorf("%+v: lost %v", bad, got)
	}
}

// TestDamagesAreNamed: the log names a range once, with all that a reader needs to
// know, and the metrics as long as the process runs; their number is bounded.
func TestDamagesAreNamed(t *testing.T) {
	d, orders := newDamaged(), &kernel.Topic{ID: kernel.TopicID{1}, Name: "orders"}
	d.meets(t, orders, placement.Damage{First: 15, Last: 19}, false)
	d.meets(t, orders, placement.Damage{First: 10, Last: 19}, false)
	if s := d.out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, `"topic":"orders","partition":2,"first":15,"last":19`) {
		t.Fatal(s)
	}
	ch := make(chan prometheus.Metric, 2)
	d.collect(ch)
	if m := (<-ch).Desc(); m != descDamaged || d.list[0].first != 10 {
		t.Fatal(m, d.list)
	}
	for i := range int64(2 * damagedRanges) {
		d.meets(t, orders, placement.Damage{First: 10 * i, Last: 10*i + 1}, false)
	}
	if len(d.list) != damagedRanges {
		t.Fatalf("%d ranges", len(d.list))
	}
}

// TestDamageIsLost: what is wrong on the disk is lost when it is met again, and what
// follows it at once; what cannot be read is after three tries that are apart; and
// nothing is that another node may have, or that is of another topic.
func TestDamageIsLost(t *testing.T) {
	d, topic := newDamaged(), &kernel.Topic{ID: kernel.TopicID{1}, Name: "t"}
	wrong := placement.Damage{First: 10, Last: 19, Wrong: true, Alone: true}
	d.meets(t, topic, wrong, false)
	d.meets(t, topic, wrong, true)
	d.meets(t, topic, placement.Damage{First: 20, Last: 29, Wrong: true, Alone: true}, true)
	d.meets(t, topic, placement.Damage{First: 12, Last: 19, Wrong: true, Alone: true}, true)
	d.meets(t, topic, placement.Damage{First: 31, Last: 39, Wrong: true, Alone: true}, false)
	d.meets(t, &kernel.Topic{ID: kernel.TopicID{2}, Name: "t"}, wrong, false)
	if r := d.list[0]; r.first != 10 || r.last != 29 {
		t.Errorf("%+v", r)
	}

	unread := placement.Damage{First: 50, Last: 59, Alone: true}
	for _, lost := range []bool{false, false, true} {
		d.meets(t, topic, unread, lost)
		d.meets(t, topic, unread, lost)
		d.at = d.at.Add(damagePause)
	}
	d.meets(t, topic, placement.Damage{First: 60, Last: 69, Alone: true}, false) // has tries of its own

	elsewhere := placement.Damage{First: 90, Last: 99, Wrong: true}
	for range 5 {
		d.meets(t, topic, elsewhere, false)
		d.at = d.at.Add(damagePause)
	}
}
