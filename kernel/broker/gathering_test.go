package broker

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// TestPublishesWaitForClients: while a facade gathers it takes publishes of no kind, with
// and without targets, and says so; all else goes on. Then they are taken.
func TestPublishesWaitForClients(t *testing.T) {
	b := open(t, t.TempDir())
	proceed := gather(b)
	c, told := connect(t, b), make(chan struct{}, 10)
	c.WatchAlarms(func() { told <- struct{}{} })
	if _, err := c.DeclareQueue(soon(t), QueueSpec{Name: "q", Exclusive: true, Again: true}); err != nil {
		t.Fatal(err)
	}
	if err := c.Bind(soon(t), kernel.Binding{Exchange: kernel.ExchangeTopic, Queue: "q", Key: "a.b"}); err != nil {
		t.Fatal(err)
	}
	p := c.Publisher(newOutcomes())
	defer p.Close()
	r := &kernel.Record{Key: []byte("q"), Value: []byte("v")}
	ways := map[string]func() (int, error){
		"exchange": func() (int, error) { return p.ToExchange("", "q", r, kernel.PublishOptions{}, 1) },
		"nobody":   func() (int, error) { return p.ToExchange("", "later", r, kernel.PublishOptions{}, 2) },
		"topic":    func() (int, error) { return p.ToTopic("a/b", r, 3) },
		"retained": func() (int, error) { return p.RetainAt(kernel.ExchangeTopic, "a.b", r, kernel.PublishOptions{}, 4) },
	}
	for way, publish := range ways {
		if n, err := publish(); kernel.CodeOf(err) != kernel.CodePressure {
			t.Errorf("%s: %d, %v", way, n, err)
		}
	}
	if a := c.Alarms(); !a.Leader.On || a.Short() != "nodes" {
		t.Errorf("%+v", a)
	}
	stored := make(chan error, 1) // what comes as a batch waits
	go func() { stored <- c.Publisher(nil).ToPartition(&kernel.Topic{Name: "missing"}, 0, nil, 1) }()
	for range 1000 {
		runtime.Gosched()
	}
	if len(stored) > 0 {
		t.Error("a batch does not wait")
	}
	close(proceed)
	b.Gathered(soon(t))
	if err := <-stored; kernel.CodeOf(err) != kernel.CodeNotFound {
		t.Error(err)
	}
	for c.Alarms().Any() {
		<-told
	}
	for way, publish := range ways {
		if _, err := publish(); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
	if err := p.Settle(soon(t)); err != nil {
		t.Fatal(err)
	}
	if info, err := c.Queue("q"); err != nil || info.Ready != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestNobodyTakesTheQueueOfAClientThatIsNotBackYet: while a facade gathers a name that is
// not there may be that of an exclusive queue, whose connection declares it again in a
// moment. Another one that declares it meanwhile, or asks for it, waits, and finds it locked.
func TestNobodyTakesTheQueueOfAClientThatIsNotBackYet(t *testing.T) {
	b := open(t, t.TempDir())
	proceed := gather(b)
	owner, other := connect(t, b), connect(t, b)
	declared := make(chan error, 3)
	for _, exclusive := range []bool{true, false} {
		go func() {
			_, err := other.DeclareQueue(soon(t), QueueSpec{Name: "q", Exclusive: exclusive, Durable: !exclusive})
			declared <- err
		}()
	}
	go func() {
		_, err := other.Queue("q")
		declared <- err
	}()
	for range 1000 {
		runtime.Gosched()
	}
	if len(declared) > 0 {
		t.Error("another connection does not wait")
	}
	if _, err := owner.DeclareQueue(soon(t), QueueSpec{Name: "q", Exclusive: true, Again: true}); err != nil {
		t.Error(err)
	}
	close(proceed)
	for range 3 {
		if err := <-declared; kernel.CodeOf(err) != kernel.CodeLocked {
			t.Errorf("another connection declares it, or asks for it: %v", err)
		}
	}
}

// TestGatherIsBounded: clients that do not come back hold publishes up for a time, and
// neither those nor one who waits for them hold up the end of the facade.
func TestGatherIsBounded(t *testing.T) {
	never := func(ctx context.Context) { <-ctx.Done() }
	b := open(t, t.TempDir())
	b.Gather(time.Millisecond, never)
	b.Gathered(context.Background())
	b.Gathered(context.Background())
	if b.Alarms().Any() {
		t.Error("publishes wait still")
	}
	b = open(t, t.TempDir())
	b.Gather(time.Hour, never)
	b.Retire() // what waits is to have its outcome before
	b.Gathered(context.Background())
	b = open(t, t.TempDir())
	b.Gather(time.Hour, never)
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		b.Gathered(context.Background())
	}()
	shut(t, b)
	<-waiting
}

// gather has a facade gather until the channel is closed.
func gather(b *Broker) (proceed chan struct{}) {
	proceed = make(chan struct{})
	b.Gather(patience, func(ctx context.Context) {
		select {
		case <-proceed:
		case <-ctx.Done():
		}
	})
	return proceed
}
