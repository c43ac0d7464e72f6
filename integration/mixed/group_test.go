// Package mixed tests what only a broker with one share group for all protocols
// can do: members of different protocols working off one backlog.
package mixed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

const queue = "orders"

// tally counts, per message, how often it was settled, and per member how many.
type tally struct {
	mu       sync.Mutex
	settled  map[string]int
	byMember map[string]int
	total    atomic.Int64

	// With members set, one that has settled a quarter of so many messages waits until
	// each of them has settled its least: how fast a client is, is not what is tested.
	members, of, least int
	even               *sync.Cond
}

func newTally() *tally {
	y := &tally{settled: map[string]int{}, byMember: map[string]int{}}
	y.even = sync.NewCond(&y.mu)
	return y
}

func (y *tally) settle(member, body string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for y.byMember[member] >= y.of/4 && y.uneven() {
		y.even.Wait()
	}
	y.settled[body]++
	y.byMember[member]++
	y.total.Add(1)
	y.even.Broadcast()
}

// uneven reports whether some member has not settled its least.
func (y *tally) uneven() bool {
	if len(y.byMember) < y.members {
		return true
	}
	for _, n := range y.byMember {
		if n < y.least {
			return true
		}
	}
	return false
}

// exactlyOnce fails unless every expected message was settled once.
func (y *tally) exactlyOnce(t *testing.T, want int) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.settled) != want {
		t.Errorf("%d different messages were settled, want %d", len(y.settled), want)
	}
	for body, n := range y.settled {
		if n != 1 {
			t.Errorf("%s was settled %d times", body, n)
		}
	}
}

func declareQueue(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
}

// consumeAMQP joins the queue over AMQP with the given prefetch and settles all
// it gets until the channel closes.
func consumeAMQP(t *testing.T, ch *amqp.Channel, prefetch int, y *tally, member string) {
	t.Helper()
	harness.Must(t, ch.Qos(prefetch, 0, false))
	deliveries, err := ch.Consume(queue, member, false, false, false, false, nil)
	harness.Must(t, err)
	go func() {
		for d := range deliveries {
			y.settle(member, string(d.Body))
			_ = d.Ack(false)
		}
	}()
}

// byHand makes a client hand messages to got, which acks them or does not.
func byHand(got mqtt.MessageHandler) func(*mqtt.ClientOptions) {
	return func(o *mqtt.ClientOptions) { o.SetAutoAckDisabled(true).SetDefaultPublishHandler(got) }
}

// consumeMQTT joins through a share address and settles all it gets.
func consumeMQTT(t *testing.T, b *harness.Broker, address string, y *tally) {
	t.Helper()
	c := b.DialMQTT(t, "member-"+address[1:6], byHand(func(_ mqtt.Client, m mqtt.Message) {
		y.settle(address, string(m.Payload()))
		m.Ack()
	}))
	subscribe(t, c, address)
}

func subscribe(t *testing.T, c mqtt.Client, filter string) {
	t.Helper()
	tok := c.Subscribe(filter, 1, nil)
	harness.Done(t, tok)
	if code := tok.(*mqtt.SubscribeToken).Result()[filter]; code > 1 {
		t.Fatalf("subscribe %s: SUBACK 0x%02x", filter, code)
	}
}

// publishThirds publishes n messages, a third over each protocol, at the same
// time, each confirmed.
func publishThirds(t *testing.T, b *harness.Broker, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for _, publish := range []func(*harness.Broker, int) error{publishAMQP, publishMQTT, publishKafka} {
		wg.Go(func() {
			if err := publish(b, n/3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func publishAMQP(b *harness.Broker, n int) error {
	conn, ch, _, err := b.OpenAMQP()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, n))
	for i := range n {
		body := fmt.Appendf(nil, "amqp-%d", i)
		if err := ch.PublishWithContext(context.Background(), "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}); err != nil {
			return err
		}
	}
	for range n {
		if c := <-confirms; !c.Ack {
			return fmt.Errorf("publish %d was not confirmed", c.DeliveryTag)
		}
	}
	return nil
}

func publishMQTT(b *harness.Broker, n int) error {
	c, _, err := b.OpenMQTT("publisher")
	if err != nil {
		return err
	}
	defer c.Disconnect(0)
	tokens := make([]mqtt.Token, n)
	for i := range tokens {
		tokens[i] = c.Publish(queue, 1, false, fmt.Sprintf("mqtt-%d", i))
	}
	for _, tok := range tokens {
		if !tok.WaitTimeout(30*time.Second) || tok.Error() != nil {
			return fmt.Errorf("MQTT publish: %w", tok.Error())
		}
	}
	return nil
}

func publishKafka(b *harness.Broker, n int) error {
	c, err := b.OpenKafka()
	if err != nil {
		return err
	}
	defer c.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: queue, Value: fmt.Appendf(nil, "kafka-%d", i)})
	}
	return c.ProduceSync(context.Background(), records...).FirstErr()
}

// readKafka reads the topic from offset 0 until it has n records, and counts
// each.
func readKafka(ctx context.Context, b *harness.Broker, n int) (seen map[string]int, err error) {
	c, err := b.OpenKafka(kgo.ConsumeTopics(queue))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	records, err := harness.Records(ctx, c, n)
	seen = map[string]int{}
	for _, r := range records {
		seen[string(r.Value)]++
	}
	return seen, err
}

// TestOneGroupAcrossProtocols: an AMQP consumer, $share/Q/Q and $queue/Q are
// members of one share group; a Kafka reader beside them sees everything.
func TestOneGroupAcrossProtocols(t *testing.T) {
	const n = 30_000
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	declareQueue(t, ch)
	y := newTally()
	y.members, y.of, y.least = 3, n, n*15/100
	consumeMQTT(t, b, "$share/"+queue+"/"+queue, y)
	consumeMQTT(t, b, "$queue/"+queue, y)
	consumeAMQP(t, ch, 100, y, "amqp")

	var seen map[string]int
	read := make(chan struct{})
	go func() {
		defer close(read)
		var err error
		if seen, err = readKafka(t.Context(), b, n); err != nil {
			t.Error(err)
		}
	}()
	publishThirds(t, b, n)
	harness.Wait(t, 60*time.Second, "all messages are settled", func() bool { return y.total.Load() >= n })
	<-read

	y.exactlyOnce(t, n)
	for member, count := range y.byMember {
		t.Logf("%s settled %d (%.1f %%)", member, count, 100*float64(count)/n)
		if count < y.least {
			t.Errorf("%s settled only %d of %d", member, count, n)
		}
	}
	if len(y.byMember) != 3 {
		t.Errorf("members that got something: %v, want three", y.byMember)
	}
	if len(seen) != n {
		t.Errorf("the Kafka reader saw %d different messages, want %d", len(seen), n)
	}
	if q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("queue after: %d messages, %v", q.Messages, err)
	}
}

// TestKilledMemberLosesNothing: a member of each protocol holds messages and
// vanishes; the others settle them, marked redelivered.
func TestKilledMemberLosesNothing(t *testing.T) {
	const n = 3_000
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	declareQueue(t, ch)

	// Two members that take messages and never settle.
	var holding atomic.Int64
	_, deadCh, socket, err := b.OpenAMQP()
	harness.Must(t, err)
	harness.Must(t, deadCh.Qos(200, 0, false))
	held, err := deadCh.Consume(queue, "dead", false, false, false, false, nil)
	harness.Must(t, err)
	go func() {
		for range held {
			holding.Add(1)
		}
	}()
	var heldMQTT atomic.Int64
	deadMQTT, socketMQTT, err := b.OpenMQTT("dead-member", byHand(func(mqtt.Client, mqtt.Message) { heldMQTT.Add(1) }))
	harness.Must(t, err)
	subscribe(t, deadMQTT, "$share/"+queue+"/"+queue)
	publishThirds(t, b, n)
	harness.Wait(t, 20*time.Second, "the dead members hold messages", func() bool { return holding.Load() >= 100 && heldMQTT.Load() >= 10 })

	y := newTally()
	consumeAMQP(t, ch, 100, y, "amqp")
	_ = socket.Close()
	_ = socketMQTT.Close()
	harness.Wait(t, 30*time.Second, "all messages are settled", func() bool { return y.total.Load() >= n })
	y.exactlyOnce(t, n)
}

// TestSecondGroupIsIndependent: $share/audit/orders reads the same stored data
// with a state of its own, over AMQP as well.
func TestSecondGroupIsIndependent(t *testing.T) {
	const n = 300
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	declareQueue(t, ch)
	audit := newTally()
	consumeMQTT(t, b, "$share/audit/"+queue, audit)
	own := newTally()
	consumeAMQP(t, ch, 100, own, "amqp")
	publishThirds(t, b, n)
	harness.Wait(t, 20*time.Second, "both groups have settled all", func() bool { return own.total.Load() >= n && audit.total.Load() >= n })
	own.exactlyOnce(t, n)
	audit.exactlyOnce(t, n)
}

// TestMQTTToAMQPProperties: what docs/properties.md says about crossing from
// MQTT to AMQP and Kafka, and from AMQP to MQTT.
func TestMQTTToAMQPProperties(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "rooms", "room.*.temp")
	harness.Done(t, b.DialMQTT(t, "sensor").Publish("room/7/temp", 1, false, "21.5"))
	d, ok, err := ch.Get("rooms", true)
	if err != nil || !ok {
		t.Fatalf("get: %v %v", ok, err)
	}
	if d.Exchange != "amq.topic" || d.RoutingKey != "room.7.temp" || d.DeliveryMode != amqp.Persistent || string(d.Body) != "21.5" || d.Redelivered {
		t.Errorf("got exchange %q, key %q, mode %d, body %q, redelivered %v", d.Exchange, d.RoutingKey, d.DeliveryMode, d.Body, d.Redelivered)
	}

	got := make(chan mqtt.Message, 1)
	listener := b.DialMQTT(t, "listener", byHand(func(_ mqtt.Client, m mqtt.Message) { got <- m }))
	subscribe(t, listener, "room/#")
	err = ch.PublishWithContext(t.Context(), "amq.topic", "room.8.temp", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("19")})
	harness.Must(t, err)
	if m := harness.Receive(t, got); m.Topic() != "room/8/temp" || string(m.Payload()) != "19" {
		t.Errorf("got %s %s", m.Topic(), m.Payload())
	}
}
