package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// becomes waits until a queue has so many records ready and held.
func becomes(t *testing.T, c *Conn, name string, ready, held int64) {
	t.Helper()
	var info QueueInfo
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		var err error
		if info, err = c.Queue(name); err != nil {
			t.Fatal(err)
		}
		if info.Ready == ready && info.Held == held {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has %d ready and %d held, want %d and %d", name, info.Ready, info.Held, ready, held)
		}
	}
}

func text(name, value string) kernel.Argument { return kernel.Argument{Name: name, Value: value} }

// atLeastOnce are the arguments of a queue whose dead letters must arrive.
func atLeastOnce(exchange string, max int64) []kernel.Argument {
	return []kernel.Argument{
		text("x-dead-letter-exchange", exchange), text("x-dead-letter-strategy", "at-least-once"),
		{Name: "x-max-length", Value: max}, text("x-overflow", "reject-publish"),
	}
}

// TestBurialBeforeDeletion: a queue goes when what was refused in it before has
// its dead letters, however it goes.
func TestBurialBeforeDeletion(t *testing.T) {
	const n = 1500
	ways := map[string]func(t *testing.T, c *Conn, m *Member){
		"delete": func(t *testing.T, c *Conn, m *Member) {
			if _, err := c.DeleteQueue(soon(t), "q", false, false); err != nil {
				t.Error(err)
			}
		},
		"if-empty": func(t *testing.T, c *Conn, m *Member) {
			if _, err := c.DeleteQueue(soon(t), "q", false, true); err != nil {
				t.Error(err)
			}
		},
		"auto-delete": func(t *testing.T, c *Conn, m *Member) { m.Leave() },
		"exclusive":   func(t *testing.T, c *Conn, m *Member) { c.Close() },
	}
	for way, drop := range ways {
		t.Run(way, func(t *testing.T) {
			b := open(t, t.TempDir())
			c, other := connect(t, b), connect(t, b)
			declare(t, other, QueueSpec{Name: "dead", Durable: true})
			declare(t, c, QueueSpec{
				Name: "q", AutoDelete: way == "auto-delete", Exclusive: way == "exclusive",
				Arguments: []kernel.Argument{text("x-dead-letter-exchange", ""), text("x-dead-letter-routing-key", "dead")},
			})
			p := publisher(t, c)
			for i := range n {
				p.next++
				if _, err := p.p.ToExchange("", "q", &kernel.Record{Value: fmt.Append(nil, i)}, kernel.PublishOptions{}, p.next); err != nil {
					t.Fatal(err)
				}
			}
			m, in := consume(t, c, "q", kernel.MemberOptions{}, n)
			in.wait(t, n)
			m.Settle(kernel.Refuse, 0, 0, n-1)
			drop(t, c, m)
			becomes(t, other, "dead", n, 0)
		})
	}
}

// TestDeadLetterOncePerTarget: while one of two targets is full, the other one has
// the dead letter once; it comes to the full one when that has room.
func TestDeadLetterOncePerTarget(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.DeclareExchange(soon(t), kernel.Exchange{Name: "x", Type: kernel.Fanout, Durable: true}))
	full := []kernel.Argument{{Name: "x-max-length", Value: int64(1)}, text("x-overflow", "reject-publish")}
	declare(t, c, QueueSpec{Name: "free", Durable: true})
	declare(t, c, QueueSpec{Name: "full", Durable: true, Arguments: full})
	bind(t, c, "x", "free", "")
	bind(t, c, "x", "full", "")
	declare(t, c, QueueSpec{Name: "q", Type: kernel.Quorum, Durable: true, Arguments: atLeastOnce("x", 100)})
	p := publisher(t, c)
	p.exchange("", "full", "first")
	p.exchange("", "q", "dies")
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 1)
	in.wait(t, 1)
	m.Settle(kernel.Refuse, 0, 0, 0)
	becomes(t, c, "free", 1, 0)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); b.dead.kept.Load() < 3; <-tick.C {
		if time.Now().After(end) {
			t.Fatal("it is not tried again")
		}
	}
	becomes(t, c, "free", 1, 0)
	becomes(t, c, "q", 0, 1)
	_, err := c.PurgeQueue(soon(t), "full")
	must(err)
	becomes(t, c, "full", 1, 0)
	becomes(t, c, "q", 0, 0)
	becomes(t, c, "free", 1, 0)
}

// TestDeadLettersTakeUpRoom: what waits for a dead letter that must arrive counts
// in its queue, which is not empty either; but it does not keep it for ever.
func TestDeadLettersTakeUpRoom(t *testing.T) {
	const most = 10
	sized := atLeastOnce("missing", 0)
	sized[2] = kernel.Argument{Name: "x-max-length-bytes", Value: int64(most)}
	for name, args := range map[string][]kernel.Argument{"length": atLeastOnce("missing", most), "bytes": sized} {
		t.Run(name, func(t *testing.T) {
			b := open(t, t.TempDir())
			c := connect(t, b)
			declare(t, c, QueueSpec{Name: "q", Type: kernel.Quorum, Durable: true, Arguments: args})
			p := publisher(t, c)
			m, in := consume(t, c, "q", kernel.MemberOptions{}, 10*most) // more than it may have
			for i := range most {
				p.exchange("", "q", fmt.Sprint(i))
			}
			in.wait(t, most)
			m.Settle(kernel.Refuse, 0, 0, most-1)
			becomes(t, c, "q", 0, most)
			p.next++
			_, err := p.p.ToExchange("", "q", &kernel.Record{Value: []byte("x")}, kernel.PublishOptions{}, p.next)
			if err == nil {
				err = p.done.wait(t, p.next).Err
			}
			if !placement.IsQueueFull(err) {
				t.Errorf("published: %v", err)
			}
			_, err = c.DeleteQueue(soon(t), "q", false, true)
			wantCode(t, err, kernel.CodePrecondition)
			begin := time.Now()
			if _, err = c.DeleteQueue(soon(t), "q", false, false); err != nil {
				t.Error(err)
			}
			if d := time.Since(begin); d >= buryWait {
				t.Errorf("its deletion took %v", d)
			}
		})
	}
}

// TestDeadLetterWithoutTables: a broker whose front-ends know no typed tables
// leaves those it meets as they are.
func TestDeadLetterWithoutTables(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "dead", Durable: true})
	declare(t, c, QueueSpec{
		Name: "q", Durable: true,
		Arguments: []kernel.Argument{text("x-dead-letter-exchange", ""), text("x-dead-letter-routing-key", "dead")},
	})
	p := publisher(t, c)
	p.next++
	r := &kernel.Record{Value: []byte("v"), Headers: []kernel.Header{{Key: kernel.HeaderTable, Value: []byte{1, 2, 3}}}}
	if _, err := p.p.ToExchange("", "q", r, kernel.PublishOptions{}, p.next); err != nil {
		t.Fatal(err)
	}
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 1)
	in.wait(t, 1)
	m.Settle(kernel.Refuse, 0, 0, 0)
	becomes(t, c, "dead", 1, 0)
}
