package forward

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// retaining publishes messages of a size, retained under "<prefix>/<number>".
func retaining(t testing.TB, c *client, prefix string, n, size int) {
	t.Helper()
	done := newOutcomes()
	p := c.Publisher(done).(edge.SessionPublisher)
	for i := range n {
		value := make([]byte, size)
		rand.NewChaCha8([32]byte{}).Read(value) // not compressible
		r := kernel.Record{Value: append(fmt.Append(nil, i, " "), value...), Timestamp: int64(i + 1), Headers: []kernel.Header{{Key: "n", Value: fmt.Append(nil, i)}}}
		if _, err := p.Retain(fmt.Sprintf("%s/%04d", prefix, i), &r, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range done.wait(t, n) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRetainedPages: what is retained comes page by page, in order, each once; a large
// message when it was admitted, which is asked once for each.
func TestRetainedPages(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	retaining(t, c, "small", 300, 100)
	retaining(t, c, "some", 3, 100)
	cur, err := s.Retained(soon(t), "#")
	if err != nil {
		t.Fatal(err)
	}
	never := func(int) bool { t.Error("asked for a small one"); return false }
	var all []kernel.Retained
	pages := 0
	for more := true; more; pages++ {
		var list []kernel.Retained
		if list, more, err = cur.Next(50, 1<<20, never); err != nil || len(list) > 50 {
			t.Fatal(len(list), err)
		}
		all = append(all, list...)
	}
	if len(all) != 303 || pages < 7 {
		t.Fatalf("%d messages in %d pages", len(all), pages)
	}
	for i, m := range all[:300] {
		if m.Name != fmt.Sprintf("small/%04d", i) || !bytes.HasPrefix(m.Record.Value, fmt.Append(nil, i)) || m.Record.Timestamp != int64(i+1) || m.Version == 0 ||
			len(m.Record.Headers) != 1 {
			t.Fatalf("%d: %+v", i, m)
		}
	}
	if list, more, err := cur.Next(50, 1<<20, never); len(list) > 0 || more || err != nil {
		t.Error("it goes on after its end")
	}
	again, ok, err := s.RetainedAgain(all[7].Name, all[7].Version)
	if err != nil || !ok || !bytes.Equal(again.Value, all[7].Record.Value) || len(again.Headers) != 1 {
		t.Errorf("%+v %v %v", again, ok, err)
	}
	if _, ok, err = s.RetainedAgain(all[7].Name, all[7].Version+1); ok || err != nil {
		t.Error(ok, err)
	}
	far := n.only()
	if h := far.held(); len(h.cursors) > 0 {
		t.Errorf("%d cursors", len(h.cursors))
	}
}

// TestRetainedLarge: a large message is not sent before it is admitted.
func TestRetainedLarge(t *testing.T) {
	n := serve(t, open(t, largeRecords))
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	retaining(t, c, "a", 2, 10)
	retaining(t, c, "b", 2, 5<<20)
	retaining(t, c, "c", 1, 10)
	cur, err := s.Retained(soon(t), "#")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	admit := func(ok bool) func(int) bool {
		return func(size int) bool {
			if asked++; size < 5<<20 {
				t.Errorf("asked for %d bytes", size)
			}
			return ok
		}
	}
	page := func(ok bool, want ...string) {
		t.Helper()
		list, more, err := cur.Next(100, 1<<20, admit(ok))
		var got []string
		for _, m := range list {
			got = append(got, m.Name)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || more != (len(want) == 0 || want[len(want)-1] != "c/0000") {
			t.Errorf("got %v %v %v, want %v", got, more, err, want)
		}
	}
	page(false, "a/0000", "a/0001")
	page(false)
	page(false)
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	page(true, "b/0000")
	page(false)
	page(true, "b/0001")
	page(true, "c/0000")
	if asked != 5 {
		t.Errorf("asked %d times", asked)
	}
}

// TestCursorsAreBounded: so many may be read from at a time, and those that nobody has any
// more are forgotten, as are all with the session.
func TestCursorsAreBounded(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	retaining(t, c, "a", 3, 10)
	list := make([]edge.Cursor, maxCursors+1)
	for i := range list {
		list[i], _ = s.Retained(soon(t), "#")
		_, more, err := list[i].Next(1, 100, nil)
		if i < maxCursors && (err != nil || !more) {
			t.Fatal(i, more, err)
		}
		if i == maxCursors {
			wantCode(t, err, kernel.CodeLimit)
		}
	}
	last := list[maxCursors]
	for i := range list {
		list[i] = nil
	}
	far := n.only()
	collect(t, "cursors that nobody has are forgotten", func() bool {
		_, _, err := last.Next(1, 100, nil)
		return err == nil
	})
	s.Detach(0)
	if far.held() != nil {
		t.Error("the session is still held")
	}
	_, _, err := last.Next(1, 100, nil)
	wantCode(t, err, kernel.CodeFenced)
	_, err = s.Retained(soon(t), "#")
	wantCode(t, err, kernel.CodeFenced)
}

// TestRetainedCompressed: what is much larger than it is stored comes in several parts.
func TestRetainedCompressed(t *testing.T) {
	n := serve(t, open(t, largeRecords))
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	p := c.Publisher(nil).(edge.SessionPublisher)
	for i := range 20 {
		if _, err := p.Retain(fmt.Sprint("a/", i), &kernel.Record{Value: make([]byte, 2<<20)}, 1); err != nil {
			t.Fatal(err)
		}
	}
	cur, err := s.Retained(soon(t), "#") // waits for them
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for more := true; more; {
		var list []kernel.Retained
		if list, more, err = cur.Next(100, 1<<20, func(int) bool { return true }); err != nil || len(list) > 1 {
			t.Fatal(len(list), err)
		}
		got += len(list)
	}
	if got != 20 {
		t.Error(got)
	}
}
