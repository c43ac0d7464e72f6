package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/retain"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// retains publishes a retained message and waits for its outcome.
func (p *pub) retains(name, value string, headers ...kernel.Header) error {
	p.t.Helper()
	p.next++
	_, err := p.p.Retain(name, &kernel.Record{Key: []byte(name), Value: []byte(value), Headers: headers}, p.next)
	if err != nil {
		return err
	}
	return p.done.wait(p.t, p.next).Err
}

func expiresAt(at time.Time) kernel.Header {
	return kernel.Header{Key: kernel.HeaderExpiresAt, Value: fmt.Append(nil, at.UnixMilli())}
}

// retainedOf lists what a filter finds, as name=value, a few at a time.
func retainedOf(t testing.TB, s *Session, filter string) (list []string) {
	t.Helper()
	r, err := s.Retained(soon(t), filter)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var page []kernel.Retained
		if page, more, err = r.Next(2, 100, func(int) bool { return true }); err != nil {
			t.Fatal(err)
		}
		for i := range page {
			list = append(list, page[i].Name+"="+string(page[i].Record.Value))
		}
	}
	return list
}

func wantRetained(t testing.TB, s *Session, filter string, want ...string) {
	t.Helper()
	if got := retainedOf(t, s, filter); !slices.Equal(got, want) {
		t.Errorf("%s finds %q, want %q", filter, got, want)
	}
}

func TestRetained(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, func(c *Config) { c.Limits.RetainedMemory = 100 }) // most is read from the disk
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, 0)
	_, in := subscribe(t, s, "a/#", 1)
	p := publisher(t, c)
	for _, e := range [][2]string{{"a/1", "old"}, {"a/1", "new"}, {"a/2", strings.Repeat("x", 200)}, {"a", "0"}, {"$x/1", "hidden"}, {"a/3", "3"}, {"a/3", ""}, {"b", "b"}} {
		if err := p.retains(e[0], e[1]); err != nil {
			t.Fatal(err)
		}
	}
	p.topic("a/1", "not retained")
	if got := in.wait(t, 7); !slices.Equal(got, []string{"a/1=old", "a/1=new", "a/2=" + strings.Repeat("x", 200), "a=0", "a/3=3", "a/3=", "a/1=not retained"}) {
		t.Errorf("forwarded %q", got)
	}
	check := func(s *Session) {
		t.Helper()
		wantRetained(t, s, "a/#", "a=0", "a/1=new", "a/2="+strings.Repeat("x", 200))
		wantRetained(t, s, "+", "a=0", "b=b")
		wantRetained(t, s, "#", "a=0", "a/1=new", "a/2="+strings.Repeat("x", 200), "b=b")
		wantRetained(t, s, "$x/#", "$x/1=hidden")
		wantRetained(t, s, "a/3")
	}
	check(s)
	wantCode(t, p.retains("a/+", "x"), kernel.CodeInvalidName)
	wantCode(t, p.retains("", "x"), kernel.CodeInvalidName)
	wantCode(t, p.retains(strings.Repeat("x", retain.MaxTopic+1), "x"), kernel.CodeInvalidName)
	shut(t, b)
	b = open(t, dir)
	s, _ = attach(t, connect(t, b), "c", true, 0)
	check(s)
}

// TestRetainedPowerLoss: what is confirmed is retained, with the publish itself.
func TestRetainedPowerLoss(t *testing.T) {
	fs := vfs.NewMem()
	b := open(t, "data", func(c *Config) { c.FS = fs })
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, time.Hour)
	subscribe(t, s, "a/#", 1)
	p := publisher(t, c)
	for i := range 50 {
		if err := p.retains("a/x", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	crashed := fs.CrashClone(nil)
	b2 := open(t, "data", func(c *Config) { c.FS = crashed })
	s2, present := attach(t, connect(t, b2), "c", false, time.Hour)
	wantRetained(t, s2, "#", "a/x=49")
	in := newInbox()
	a, err := s2.Attach(soon(t), kernel.Subscription{Filter: "a/#", QoS: 1}, 0, in, in)
	if err != nil || !present {
		t.Fatal(present, err)
	}
	a.Member.Credit(100)
	in.wait(t, 50)
}

// TestRetainedIsTheLastOfTheLog: of concurrent publishes to a topic, the one that
// is last in the log is retained.
func TestRetainedIsTheLastOfTheLog(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, time.Hour)
	_, in := subscribe(t, s, "x", 1)
	var wg sync.WaitGroup
	for i := range 4 {
		p := publisher(t, connect(t, b))
		wg.Go(func() {
			for n := range 20 {
				if err := p.retains("x", fmt.Sprintf("%d/%d", i, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := in.wait(t, 80)
	wantRetained(t, s, "x", "x="+got[79])
}

func TestRetainedLimits(t *testing.T) {
	b := open(t, t.TempDir(), func(c *Config) { c.Limits.Retained, c.Limits.RetainedBytes = 2, 100 })
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, 0)
	p := publisher(t, c)
	for _, e := range []struct {
		name, value string
		code        kernel.Code
	}{
		{"a", "1", 0}, {"b", strings.Repeat("x", 100), kernel.CodeLimit}, {"b", "2", 0}, {"c", "3", kernel.CodeLimit},
		{"a", "one", 0}, {"c", "", 0}, {"a", "", 0}, {"c", "3", 0}, {"c", strings.Repeat("x", 100), kernel.CodeLimit},
	} {
		if err := p.retains(e.name, e.value); e.code == 0 && err != nil {
			t.Fatal(e.name, err)
		} else if e.code != 0 {
			wantCode(t, err, e.code)
		}
	}
	wantRetained(t, s, "#", "b=2", "c=3")
}

// clockAt is a clock that tests move on.
type clockAt struct{ ahead atomic.Int64 }

func (c *clockAt) now() time.Time      { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clockAt) add(d time.Duration) { c.ahead.Add(int64(d)) }

// TestRetainedExpires: an expired message is not shown, and removed.
func TestRetainedExpires(t *testing.T) {
	clock := &clockAt{}
	b := open(t, t.TempDir(), func(c *Config) { c.Now = clock.now })
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, 0)
	p := publisher(t, c)
	soonOver := expiresAt(clock.now().Add(2 * time.Second))
	for _, e := range []error{
		p.retains("a", "1", expiresAt(clock.now().Add(time.Hour))), p.retains("b", "1", soonOver),
		p.retains("c", "1", soonOver), p.retains("c", "2"), p.retains("d", "1"),
	} {
		if e != nil {
			t.Fatal(e)
		}
	}
	wantRetained(t, s, "#", "a=1", "b=1", "c=2", "d=1")
	clock.add(3 * time.Second)
	wantRetained(t, s, "#", "a=1", "c=2", "d=1")
	x := b.retained.of("/")
	limit := time.After(patience)
	for x.Len() != 3 {
		select {
		case <-limit:
			t.Fatalf("%d are left", x.Len())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if v, err := b.durable.Get(retain.Key("/", "b")); v != nil || err != nil {
		t.Errorf("still stored: %q, %v", v, err)
	}
}

// TestRetainedWaitsForPublishes: who subscribes is shown what was being published
// before.
func TestRetainedWaitsForPublishes(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, 0)
	p := c.Publisher(nil)
	for i := range 200 {
		v := fmt.Sprint(i)
		if _, err := p.Retain("x", &kernel.Record{Key: []byte("x"), Value: []byte(v)}, 0); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			wantRetained(t, s, "x", "x="+v)
		}
	}
}

// TestStartWithManyRetained: many retained messages are loaded at the start.
func TestStartWithManyRetained(t *testing.T) {
	const n = 50_000
	dir := t.TempDir()
	b := open(t, dir)
	var puts []placement.KV
	for i := range n {
		name := fmt.Sprintf("site/%d/temperature", i)
		puts = append(puts, placement.KV{Key: retain.Key("/", name), Value: retain.Append(nil, &kernel.Record{Key: []byte(name), Value: []byte("21.5")})})
		if len(puts) == 1000 {
			if err := b.durable.Put(soon(t), puts); err != nil {
				t.Fatal(err)
			}
			puts = puts[:0]
		}
	}
	shut(t, b)
	begin := time.Now()
	b = open(t, dir)
	t.Logf("opened with %d retained messages in %v", n, time.Since(begin))
	if got := b.retained.of("/").Len(); got != n {
		t.Errorf("%d are there", got)
	}
}
