package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/trivium-mq/trivium/integration/cluster/history"
	"github.com/trivium-mq/trivium/integration/harness"
)

// grace is how long clients may be left in the belief that a connection lives
// which has gone: heartbeats of both sides, and of the tunnel between nodes.
const grace = 15 * time.Second

// pace is how often a publisher publishes.
const pace = 5 * time.Millisecond

// load is clients of all protocols on all nodes, and the history of what they see.
//
//	work    published over AMQP and MQTT; consumed by group work (AMQP and MQTT
//	        members on one backlog) and, once more, by group audit
//	events  published over Kafka by idempotent producers; consumed by group events
//	once    published over AMQP and MQTT with ids, again and again until it is
//	        confirmed; consumed by group once
type load struct {
	t       testing.TB
	seed    uint64
	work    *history.Topic
	events  *history.Topic
	once    *history.Topic
	objects *history.Objects
	locks   *locks

	consumers  sync.WaitGroup
	publishers sync.WaitGroup
	stop       context.CancelFunc // publishers
	end        context.CancelFunc // consumers
	progress   map[string]*atomic.Int64

	mu  sync.Mutex
	all []*harness.Node // that clients connect to
}

// groups are the share groups of the topics.
var groups = map[string][]string{"work": {"work", "audit"}, "events": {"events"}, "once": {"once"}}

func newLoad(t testing.TB, nodes []*harness.Node, seed uint64) *load {
	return &load{
		t: t, all: slices.Clone(nodes), seed: seed, work: history.NewTopic("work"), events: history.NewTopic("events"),
		once: history.NewTopic("once"), objects: history.NewObjects(), locks: newLocks(), progress: map[string]*atomic.Int64{},
	}
}

// topics are those with a history.
func (l *load) topics() []*history.Topic { return []*history.Topic{l.work, l.events, l.once} }

// prepare declares what the clients use.
func (l *load) prepare() {
	l.t.Helper()
	c, err := dialAMQP(l.nodes()[0])
	harness.Must(l.t, err)
	defer c.close()
	for _, q := range []string{"work", "$share/audit/work", "events"} {
		_, err := c.ch.QueueDeclare(q, true, false, false, false, nil)
		harness.Must(l.t, err)
	}
	for _, q := range []string{"once", lockQueue} {
		_, err := c.ch.QueueDeclare(q, true, false, false, false, remembered)
		harness.Must(l.t, err)
	}
	harness.Must(l.t, c.ch.Confirm(false))
	harness.Confirmed(l.t, c.ch, "", lockQueue, tokenRecord(history.Token{}))
}

// start starts the clients.
func (l *load) start() {
	publishing, stop := context.WithCancel(context.Background())
	consuming, end := context.WithCancel(context.Background())
	l.stop, l.end = stop, end
	publish := func(name string, run func(context.Context, *client)) {
		c := l.client(name)
		l.publishers.Go(func() { run(publishing, c) })
	}
	consume := func(name string, run func(context.Context, *client)) {
		c := l.client(name)
		l.consumers.Go(func() { run(consuming, c) })
	}
	for i := range 2 {
		publish(fmt.Sprint("amqp-publisher-", i), l.publishAMQP)
		publish(fmt.Sprint("kafka-producer-", i), l.produceKafka)
		publish(fmt.Sprint("repeater-", i), l.publishOnce)
		consume(fmt.Sprint("amqp-worker-", i), l.consumerAMQP(l.work, "work", "work"))
		consume(fmt.Sprint("amqp-locker-", i), l.lock)
		consume(fmt.Sprint("amqp-namer-", i), l.name)
	}
	publish("mqtt-publisher", l.publishMQTT)
	consume("mqtt-worker", l.consumerMQTT(l.work, "work", "$queue/work"))
	consume("amqp-auditor", l.consumerAMQP(l.work, "audit", "$share/audit/work"))
	consume("amqp-once-worker", l.consumerAMQP(l.once, "once", "once"))
	consume("amqp-event-worker", l.consumerAMQP(l.events, "events", "events"))
	consume("mqtt-event-worker", l.consumerMQTT(l.events, "events", "$queue/events"))
}

// client is one client: its name, its choices, and the number of its connection.
type client struct {
	name    string
	load    *load
	rng     *rand.Rand
	epoch   int
	seq     int
	done    *atomic.Int64 // what it has achieved
	pending []string      // payloads that may be missing, to be published again
}

func (l *load) client(name string) *client {
	var hash uint64
	for _, b := range []byte(name) {
		hash = hash*31 + uint64(b)
	}
	done := &atomic.Int64{}
	l.progress[name] = done
	return &client{name: name, load: l, rng: rand.New(rand.NewPCG(l.seed, hash)), done: done}
}

// node chooses a node to connect to.
func (c *client) node() *harness.Node {
	nodes := c.load.nodes()
	return nodes[c.rng.IntN(len(nodes))]
}

// lifetime is how long a consumer keeps a connection. Some last much longer than grace:
// of theirs alone the judge knows that what they have settled must not come again.
func (c *client) lifetime() time.Duration {
	if c.rng.IntN(3) == 0 {
		return 4 * grace
	}
	return time.Duration(2+c.rng.IntN(20)) * time.Second
}

// nodes are those that clients connect to.
func (l *load) nodes() []*harness.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// replace gives clients another node in place of one that has gone.
func (l *load) replace(gone, n *harness.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(slices.DeleteFunc(l.all, func(o *harness.Node) bool { return o == gone }), n)
}

// payload makes a payload that no other is equal to.
func (c *client) payload() string {
	c.seq++
	return fmt.Sprintf("%s/%d/%d %s", c.name, c.epoch, c.seq, strings.Repeat("x", c.rng.IntN(300)))
}

// settle stops the publishers, lets the consumers take what is left, and stops them.
func (l *load) settle(patience time.Duration) {
	l.t.Helper()
	l.stop()
	l.publishers.Wait()
	deadline := time.Now().Add(patience)
	for _, topic := range l.topics() {
		for _, group := range groups[topic.Name] {
			left := topic.Undelivered(group)
			for len(left) > 0 && time.Now().Before(deadline) {
				pause(context.Background(), 50*time.Millisecond)
				left = topic.Undelivered(group)
			}
			if len(left) > 0 {
				l.t.Errorf("%s: group %s has not got %d confirmed messages, e.g. %.60q", topic.Name, group, len(left), left[0])
			}
		}
	}
	l.end()
	l.consumers.Wait()
}

// check replays the logs over Kafka and judges the histories.
func (l *load) check() {
	l.t.Helper()
	for _, topic := range l.topics() {
		log, err := replay(l.nodes()[0], topic.Name)
		if err != nil {
			l.t.Errorf("replay %s: %v", topic.Name, err)
			continue
		}
		topic.Replayed(log)
		found := topic.Check(history.Rules{Grace: grace, Once: topic != l.work})
		kinds := map[string]int{}
		for _, v := range found {
			if kinds[v.Kind]++; kinds[v.Kind] <= 5 {
				v.Payload, _, _ = strings.Cut(v.Payload, " ") // without what fills it
				l.t.Errorf("%s: %v", topic.Name, v)
			}
		}
		l.t.Logf("%s: %+v; violations %v", topic.Name, topic.Counts(), kinds)
	}
	l.checkTokens()
	wrong, undecided := l.objects.Check(60 * time.Second)
	for _, w := range wrong {
		l.t.Errorf("not linearizable: %s", w)
	}
	l.t.Logf("locks and names: %d operations", l.objects.Len())
	if undecided {
		l.t.Error("locks and names: the time was too short to tell whether they are linearizable")
	}
}

// achieved is how much each client has done so far.
func (l *load) achieved() map[string]int64 {
	out := map[string]int64{}
	for name, n := range l.progress {
		out[name] = n.Load()
	}
	return out
}

// moves waits until every client does something again.
func (l *load) moves(patience time.Duration) {
	l.t.Helper()
	before, deadline := l.achieved(), time.Now().Add(patience)
	for {
		var stuck []string
		for name, n := range l.achieved() {
			if n == before[name] {
				stuck = append(stuck, name)
			}
		}
		if len(stuck) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Errorf("after %v stuck: %v", patience, stuck)
			return
		}
		pause(context.Background(), 20*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// connection is a connection over AMQP with one channel.
type connection struct {
	conn   *amqp.Connection
	ch     *amqp.Channel
	closed chan *amqp.Error
}

func dialAMQP(n *harness.Node) (*connection, error) {
	conn, err := amqp.DialConfig("amqp://"+harness.ClusterUser+":"+harness.ClusterPassword+"@"+n.AMQP+"/", amqp.Config{
		Heartbeat: 2 * time.Second, Dial: amqp.DefaultDial(3 * time.Second),
	})
	if err != nil {
		return nil, err
	}
	c := &connection{conn: conn, closed: conn.NotifyClose(make(chan *amqp.Error, 1))}
	if c.ch, err = conn.Channel(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close ends the connection; it does not wait long for a node that does not answer.
func (c *connection) close() { _ = c.conn.CloseDeadline(time.Now().Add(time.Second)) }

// replay reads a topic over Kafka from its first offset to its end.
func replay(n *harness.Node, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := kafkaClient([]*harness.Node{n}, consume(topic)...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(topic, 0)
	var log []string
	for int64(len(log)) < end.Offset {
		f := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read %d of %d records: %w, %v", len(log), end.Offset, ctx.Err(), f.Err())
		}
		for _, r := range f.Records() {
			if r.Offset != int64(len(log)) {
				return nil, fmt.Errorf("offset %d follows %d", r.Offset, len(log)-1)
			}
			log = append(log, string(r.Value))
		}
	}
	return log, nil
}
