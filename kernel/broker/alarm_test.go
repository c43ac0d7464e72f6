package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/cluster"
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

// TestAlarmsEndWithTheService: what a node was short of when it ceased to serve holds
// nobody up when it serves again.
func TestAlarmsEndWithTheService(t *testing.T) {
	n, err := OpenNode(soon(t), Config{DataDir: t.TempDir(), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	b, err := n.Serve(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	n.alarms.memory(true, 2, 1)
	n.alarms.change(func(now *Alarms) { now.Replicas.On = true })
	if n.alarms.hold() == nil {
		t.Error("no alarm")
	}
	shut(t, b)
	if b, err = n.Serve(soon(t)); err != nil {
		t.Fatal(err)
	}
	defer shut(t, b)
	if now := b.Alarms(); now.Any() {
		t.Errorf("still on: %+v", now)
	}
}

// TestShortOfReplicas: nodes that are not heard are no alarm of disks by themselves.
func TestShortOfReplicas(t *testing.T) {
	self, here, full := cluster.Member{Self: true, Reachable: true}, cluster.Member{Reachable: true}, cluster.Member{Reachable: true, Low: true}
	down, learner := cluster.Member{}, cluster.Member{Learner: true, Low: true}
	for i, tt := range []struct {
		members []cluster.Member
		low, on bool
	}{
		{[]cluster.Member{self}, true, false},
		{[]cluster.Member{self, here, full}, false, false},
		{[]cluster.Member{self, here, here, learner, learner}, true, false},
		{[]cluster.Member{self, full, full}, false, true},
		{[]cluster.Member{self, down, full}, false, true},
		{[]cluster.Member{self, down, here}, true, true},
		{[]cluster.Member{self, down, down}, false, false},
	} {
		if on, short, voters := shortOfReplicas(tt.members, tt.low); on != tt.on {
			t.Errorf("%d: %v, %d of %d short", i, on, short, voters)
		}
	}
}

// TestAlarmsTellTheFiguresOfNow: what is free goes on changing while the disk is low.
func TestAlarmsTellTheFiguresOfNow(t *testing.T) {
	a := newAlarms(zerolog.Nop())
	a.disk(true, 100<<20, 200<<20)
	for free, want := range map[int64]string{0: "0 MiB of", 200 << 20: "200 MiB of the disk are free, publishes that"} {
		if got := a.diskReason(free, 200<<20); !strings.HasPrefix(got, want) {
			t.Error(got)
		}
	}
	a.disk(true, 300<<20, 200<<20)
	if got := a.diskReason(300<<20, 200<<20); !strings.Contains(got, "could not be written") {
		t.Error(got)
	}
	use := memoryUse{live: 80 << 20}
	m := &memoryGauge{limit: 100 << 20, read: func() memoryUse { return use }, now: time.Now, collect: func() {}}
	m.look(a)
	use.live = 90 << 20
	m.look(a)
	if got := memoryReason(a.used.Load(), a.limit.Load()); !strings.HasPrefix(got, "90 MiB") {
		t.Error(got)
	}
}
