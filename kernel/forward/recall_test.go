package forward

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestRecall: what is remembered is so for a second, and it is not much.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c recall
		c.forget()
		topic := &kernel.Topic{Name: "t", ID: kernel.TopicID{1}}
		c.topic(topic)
		for _, of := range []recalled{{m: methodTopic, name: "t"}, {m: methodTopicByID, id: topic.ID}} {
			if got, ok := c.get(of); !ok || got.topic != topic {
				t.Error(of, got, ok)
			}
		}
		time.Sleep(recallTime + 1)
		if _, ok := c.get(recalled{m: methodTopic, name: "t"}); ok {
			t.Error("it is remembered for too long")
		}
		for i := range 3 * maxRecalled {
			if c.topic(&kernel.Topic{Name: fmt.Sprint(i), ID: kernel.TopicID{byte(i), byte(i >> 8)}}); len(c.list) > maxRecalled {
				t.Fatalf("%d are remembered", len(c.list))
			}
		}
	})
}

// lasting has what is remembered so for the rest of the test, and returns how much it is.
func (c *recall) lasting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, s := range c.list {
		s.until = s.until.Add(time.Hour)
		c.list[of] = s
	}
	return len(c.list)
}

// TestRecalled: topics that are there are remembered, until a topic is made or deleted
// through the link, or something that was done says that one has gone, or may not be used.
func TestRecalled(t *testing.T) {
	b := open(t)
	c, d := serve(t, b).connect(t), direct(t, b)
	l, ctx := c.Link.(*link), soon(t)
	gone := c.logTopic("gone", 1)
	kt := c.logTopic("log", 1)
	known := func() {
		t.Helper()
		if _, err := c.Topic(ctx, "log", true); err != nil {
			t.Fatal(err)
		}
		if _, err := c.TopicByID(ctx, kt.ID, true); err != nil {
			t.Fatal(err)
		}
		if may, err := c.May(ctx, kernel.AnyAct, broker.KindTopic, "log"); err != nil || !may {
			t.Fatal(may, err)
		}
		if n := l.recall.lasting(); n != 3 {
			t.Fatalf("%d are remembered", n)
		}
	}
	if err := d.DeleteTopic(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	l.recall.forget()
	if _, err := c.Topic(ctx, "none", true); kernel.CodeOf(err) != kernel.CodeNotFound || l.recall.lasting() != 0 {
		t.Errorf("%v, and %d are remembered", err, l.recall.lasting())
	}
	done := newStored()
	p := c.Publisher(done)
	n := 0
	for what, do := range map[string]func() error{
		"a batch": func() error {
			n++
			if err := p.ToPartition(gone, 0, batchOf("v"), uint64(n)); err != nil {
				return err
			}
			wantCode(t, done.wait(t, n)[uint64(n)], kernel.CodeNotFound)
			return nil
		},
		"a read": func() error { return c.ReadLogs(ctx, reads(gone, 0, 0)) },
		"create": func() error {
			_, err := c.CreateTopic(ctx, broker.TopicSpec{Name: "log", Partitions: 1})
			wantCode(t, err, kernel.CodeExists)
			return nil
		},
		"delete": func() error {
			c.logTopic("deleted", 1) // which is remembered
			return c.DeleteTopic(ctx, "deleted")
		},
	} {
		l.recall.forget()
		known()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := l.recall.lasting(); n != 0 {
			t.Errorf("%s: %d are remembered", what, n)
		}
	}
	known()
	if err := d.DeleteTopic(ctx, "log"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Topic(ctx, "log", true); err != nil || got.ID != kt.ID {
		t.Errorf("%+v %v", got, err) // as of a while ago
	}
}

// TestRightsAreAskedFor: what a user may not do is asked for each time, and what is refused
// has all that is remembered asked for anew.
func TestRightsAreAskedFor(t *testing.T) {
	b := open(t)
	c, ctx := serve(t, b).connect(t), soon(t)
	l := c.Link.(*link)
	kt := c.logTopic("log", 1)
	allow := func(write, read string) {
		t.Helper()
		if err := b.PutPermission(ctx, kernel.Permission{Tenant: "/", User: "guest", Configure: ".*", Write: write, Read: read}); err != nil {
			t.Fatal(err)
		}
	}
	done := newStored()
	p := c.Publisher(done)
	var lacks kernel.Act
	for i, do := range []func(token uint64){
		func(token uint64) {
			lacks = kernel.Write
			allow("", ".*")
			if err := p.ToPartition(kt, 0, batchOf("v"), token); err != nil {
				t.Fatal(err)
			}
			wantCode(t, done.wait(t, 1)[token], kernel.CodeAccessRefused)
		},
		func(uint64) {
			lacks = kernel.Read
			allow(".*", "")
			q := reads(kt, 0, 0)
			if err := c.ReadLogs(ctx, q); err != nil {
				t.Fatal(err)
			}
			wantCode(t, q.Parts[0].Err, kernel.CodeAccessRefused)
		},
	} {
		allow(".*", ".*")
		if may, err := c.May(ctx, kernel.AnyAct, broker.KindTopic, "log"); err != nil || !may {
			t.Fatal(may, err)
		}
		l.recall.lasting()
		do(uint64(i))
		if n := l.recall.lasting(); n != 0 {
			t.Errorf("%d: %d are remembered", i, n)
		}
		for _, act := range []kernel.Act{kernel.Configure, lacks, kernel.Configure, lacks} {
			if may, err := c.May(ctx, kernel.Acts(0).With(act), broker.KindTopic, "log"); err != nil || may != (act != lacks) {
				t.Error(act, may, err)
			}
		}
		l.recall.lasting()
		allow(".*", ".*") // and from then on he may
		if may, err := c.May(ctx, kernel.Acts(0).With(lacks), broker.KindTopic, "log"); err != nil || !may {
			t.Error(lacks, may, err)
		}
	}
}
