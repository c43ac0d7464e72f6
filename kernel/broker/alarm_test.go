package broker

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// TestMemoryAlarm: it is raised by what is in use after a collection, or by garbage
// that is not collected in time, and ends lower, for which it has to collect.
func TestMemoryAlarm(t *testing.T) {
	a := newAlarms(zerolog.Nop())
	use := memoryUse{}
	collected := 0
	now := time.Unix(0, 0)
	m := &memoryGauge{limit: 1000, read: func() memoryUse { return use }, now: func() time.Time { return now }}
	m.collect = func() {
		collected++
		use.cycles++
		now = now.Add(time.Second)
	}
	for i, step := range []struct {
		live, total int64
		on          bool
	}{
		{699, 1000, false}, {700, 1000, true}, {600, 1000, true}, {599, 1079, false},
		{599, 1080, true}, {599, 1080, true}, {599, 1079, false},
	} {
		use.live, use.total = step.live, step.total
		m.look(a)
		if on := a.now.Load().Memory.On; on != step.on {
			t.Errorf("step %d: %v, want %v", i, on, step.on)
		}
		if err := a.hold(); kernel.CodeOf(err) == kernel.CodePressure != step.on && step.on {
			t.Errorf("step %d: %v", i, err)
		}
	}
	use.live = 900
	m.look(a)
	collected, m.after = 0, now
	for range 5 { // one collection takes a second, so the next comes ten seconds later
		m.look(a)
		now = now.Add(time.Second)
	}
	if collected != 1 {
		t.Errorf("%d collections", collected)
	}
	if got := a.raised[1].Load(); got != 3 {
		t.Errorf("raised %d times", got)
	}
}

// TestAlarmsShort: the words that clients are told, as RabbitMQ says them.
func TestAlarmsShort(t *testing.T) {
	both := Alarms{Disk: Alarm{On: true}, Memory: Alarm{On: true}}
	if got := both.Short(); got != "memory & disk" {
		t.Error(got)
	}
	if none := (&Alarms{}); none.Any() || none.Short() != "" {
		t.Error("an alarm of nothing")
	}
}
