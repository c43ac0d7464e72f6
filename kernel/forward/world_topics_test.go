package forward

import (
	"context"
	"fmt"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// wsay is an attempt to publish to a topic.
type wsay struct {
	filter string // of those who get it
	fate   fate
}

// said notes an attempt.
func (t *truth) says(name, filter string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said[name] = &wsay{filter: filter}
}

// heeds notes what a talker was told of an attempt.
func (t *truth) heeds(name string, f fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said[name].fate = f; f == isRefused && t.heard[name] {
		t.fail("%s was refused, and has been heard", name)
	}
}

// hears notes that somebody has got it.
func (t *truth) hears(filter, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard[name] = true
	if s := t.said[name]; s == nil || s.filter != filter || s.fate == isRefused {
		t.fail("%q comes to %s: %+v", name, filter, s)
	}
}

// talks is the life of a client that publishes to topics, one by one.
func (w *world) talks(name string) {
	w.talkers.Add(1)
	w.client(name, func(c *wclient) {
		defer w.talkers.Done()
		c.connect(-1)
		for n := 1; c.going(); n++ {
			filter := wfilters[c.rnd.IntN(2)].Filter
			name := fmt.Sprintf("%s/%d", c.name, n)
			c.w.truth.says(name, filter)
			c.does("says %s", name)
			r := &kernel.Record{Headers: []kernel.Header{{Key: "name", Value: []byte(name)}, {Key: kernel.HeaderQoS, Value: []byte("2")}}}
			err := c.once(func(p edge.Publisher) (int, error) { return p.ToTopic(filter[:4]+"x", r, 1) })
			c.w.truth.heeds(name, fateOf(err))
			c.passing(err)
			c.pause(15 * time.Millisecond)
		}
		c.close()
	})
}

// once publishes something with a publisher of its own, and waits for the outcome.
func (c *wclient) once(publish func(p edge.Publisher) (int, error)) error {
	done := &wonce{done: make(chan error, 1)}
	p := c.conn.Publisher(done)
	defer p.Close()
	if _, err := publish(p); err != nil {
		return err
	}
	return <-done.done
}

// passing fails the history for an error that does not pass.
func (c *wclient) passing(err error) bool {
	switch kernel.CodeOf(err) {
	case kernel.CodePressure, kernel.CodeUnavailable, kernel.CodeUnknown:
		return true
	}
	return c.must(err)
}

// up publishes once, under a number of the session.
func (d *wdevice) up() {
	if d.open == nil {
		n := d.w.number()
		d.open = &wup{number: uint16(d.sent%5 + 1), m: &wmessage{name: fmt.Sprintf("%s/up%d", d.name, n), once: true, queues: []string{"up"}}}
	}
	for d.going() || !d.w.truth.failed() {
		err := d.publishUp()
		if err == nil {
			break
		}
		if !d.passing(err) {
			return
		}
		d.w.sleep(5 * time.Millisecond)
	}
	if d.w.truth.failed() {
		return // perhaps before anything was published
	}
	if d.going() && d.rnd.IntN(10) == 0 {
		return // it is repeated by the next connection, perhaps
	}
	d.does("releases %d", d.open.number)
	done := make(chan error, 1)
	d.now.s.Release([]uint16{d.open.number}, func(unknown []uint16, err error) {
		if len(unknown) > 0 {
			d.w.truth.Failf("%s: number %d, which it has used, is not known", d.id, unknown[0])
		}
		done <- err
	})
	if d.must(<-done) {
		d.w.truth.answers(d.id)
		d.open = nil
		d.w.truth.count("ups")
	}
}

// publishUp makes one attempt.
func (d *wdevice) publishUp() error {
	d.sent++
	a := d.w.truth.sends(d.open.m, fmt.Sprintf("%s#%s#%d", d.open.m.name, d.id, d.sent), d.name)
	d.does("publishes %s as %d", a.name, d.open.number)
	r := &kernel.Record{Headers: []kernel.Header{{Key: "attempt", Value: []byte(a.name)}, {Key: kernel.HeaderQoS, Value: []byte("2")}}}
	err := d.once(func(p edge.Publisher) (int, error) {
		return p.ToTopicOnce(d.now.s, d.open.number, "up/x", r, 1)
	})
	d.w.truth.tells(a, fateOf(err))
	return err
}

// repeat goes on with a publish that an earlier connection has begun.
func (d *wdevice) repeat() bool {
	if d.open != nil {
		d.up()
	}
	return !d.w.truth.failed()
}

// judgeTopics looks at devices and wills when all is over. texts are the wills that have
// come.
func (w *world) judgeTopics(texts map[string]int) {
	t := w.truth
	for _, d := range w.things {
		if list := d.missing(); len(list) > 0 {
			t.Failf("%s has not got %q", d.name, list)
		}
		for text, f := range d.wills {
			n := texts[text]
			if n > 1 || n > 0 && f == willNot || n == 0 && f == willMust {
				t.Failf("the will of %s has come %d times: %v", text, n, f)
			}
		}
	}
}

// readWills takes the wills that have come.
func (c *wclient) readWills() map[string]int {
	c.does("reads the wills")
	texts := make(map[string]int)
	addr, err := c.conn.Address("wills")
	if !c.must(err) {
		return nil
	}
	m, err := c.conn.Join(context.Background(), addr, kernel.MemberOptions{Pull: true}, nil, nil)
	if !c.must(err) {
		return nil
	}
	for more := true; more; {
		err := m.Acquire(100, func(batch []kernel.Delivery, ready int64) {
			for i := range batch {
				texts[string(batch[i].Record.Value)]++
			}
			more = len(batch) > 0
		})
		if !c.must(err) {
			break
		}
	}
	m.Leave()
	return texts
}
