// Command demo shows one message going through all three protocols: it starts a
// broker on its embedded defaults, publishes readings over MQTT, consumes and
// acks them over AMQP, replays them over Kafka, and stops the broker.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	queue   = "readings"
	sensors = 10
)

func main() {
	bin := flag.String("bin", "bin/trivium", "the broker's binary")
	count := flag.Int("count", 10_000, "readings to publish")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := run(ctx, *bin, *count); err != nil {
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, count int) (err error) {
	dir, err := os.MkdirTemp("", "trivium-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := start(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()

	conn, ch, err := declare(b.amqp)
	if err != nil {
		return fmt.Errorf("over AMQP: %w", err)
	}
	defer conn.Close()
	if err := publish(ctx, b.mqtt, count); err != nil {
		return fmt.Errorf("over MQTT: %w", err)
	}
	if err := consume(ctx, ch, count); err != nil {
		return fmt.Errorf("over AMQP: %w", err)
	}
	if err := replay(ctx, b.kafka, count); err != nil {
		return fmt.Errorf("over Kafka: %w", err)
	}
	fmt.Println("\nOne log, three protocols: what AMQP has acked, Kafka still replays.")
	return nil
}

// broker is the process under demonstration.
type broker struct {
	amqp, mqtt, kafka string
	cmd               *exec.Cmd
	drained           chan struct{}
}

// start runs the broker on its default ports, or on free ones where another
// program holds a default.
func start(ctx context.Context, bin, dir string) (*broker, error) {
	b := &broker{drained: make(chan struct{})}
	args := []string{"serve", "--data", dir}
	listener := func(flag, addr string) string {
		free := freeAddress(addr)
		if free != addr {
			fmt.Printf("%s is taken, using %s\n", addr, free)
			args = append(args, flag, free)
		}
		return free
	}
	b.amqp, b.mqtt, b.kafka = listener("--amqp", "127.0.0.1:5672"), listener("--mqtt", "127.0.0.1:1883"), listener("--kafka", "127.0.0.1:9092")
	listener("--http", "127.0.0.1:15672")
	listener("--cluster", "127.0.0.1:7420")
	b.cmd = exec.Command(bin, args...)
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go b.drain(stderr, ready)
	select {
	case <-ready:
		fmt.Printf("broker ready in %v: amqp %s, mqtt %s, kafka %s\n\n", time.Since(began).Round(time.Millisecond), b.amqp, b.mqtt, b.kafka)
		return b, nil
	case <-b.drained:
		return nil, errors.Join(errors.New("the broker ended before it was ready"), b.cmd.Wait())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), b.stop())
	}
}

// drain reads the broker's log to its end and closes ready at the line that
// says so.
func (b *broker) drain(r io.Reader, ready chan struct{}) {
	defer close(b.drained)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if ready != nil && strings.Contains(lines.Text(), "Server startup complete") {
			close(ready)
			ready = nil
		} else if ready != nil {
			fmt.Fprintln(os.Stderr, lines.Text())
		}
	}
}

func (b *broker) stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-b.drained
	return b.cmd.Wait()
}

func freeAddress(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return addr
		}
	}
	defer l.Close()
	return l.Addr().String()
}

// declare makes the queue and binds it to what sensors publish.
func declare(addr string) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + addr + "/")
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, nil, err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return nil, nil, err
	}
	return conn, ch, ch.QueueBind(queue, "sensor.*.temperature", "amq.topic", false, nil)
}

// publish sends count readings at QoS 1 and waits for every PUBACK.
func publish(ctx context.Context, addr string, count int) error {
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + addr).SetClientID("demo-sensors"))
	if t := c.Connect(); !t.WaitTimeout(10*time.Second) || t.Error() != nil {
		return fmt.Errorf("connect: %w", t.Error())
	}
	defer c.Disconnect(100)
	began := time.Now()
	tokens := make([]mqtt.Token, count)
	for i := range tokens {
		body := fmt.Sprintf(`{"reading":%d,"celsius":%.1f}`, i, 18+float64(i%100)/10)
		tokens[i] = c.Publish(fmt.Sprintf("sensor/%d/temperature", i%sensors), 1, false, body)
	}
	for _, t := range tokens {
		select {
		case <-t.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.Error() != nil {
			return t.Error()
		}
	}
	report("MQTT ", "published at QoS 1, all PUBACKed after the fsync", count, began, `topic sensor/7/temperature, {"reading":7,"celsius":18.7}`)
	return nil
}

// consume takes count messages from the queue and acks them.
func consume(ctx context.Context, ch *amqp.Channel, count int) error {
	if err := ch.Qos(500, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "demo", false, false, false, false, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	seen := map[string]bool{}
	var sample string
	for len(seen) < count {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the channel was closed")
			}
			if len(seen) == 7 {
				sample = fmt.Sprintf("routing key %s, exchange %s, %s", d.RoutingKey, d.Exchange, d.Body)
			}
			seen[string(d.Body)] = true
			if err := d.Ack(false); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w after %d of %d messages", ctx.Err(), len(seen), count)
		}
	}
	if err := ch.Cancel("demo", false); err != nil {
		return err
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return err
	}
	if q.Messages != 0 {
		return fmt.Errorf("%d messages are left in the queue", q.Messages)
	}
	report("AMQP ", "consumed and acked, queue now empty", len(seen), began, sample)
	return nil
}

// replay reads the same messages from offset 0.
func replay(ctx context.Context, addr string, count int) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(queue),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer c.Close()
	began := time.Now()
	seen := map[string]bool{}
	var sample string
	for next := int64(0); len(seen) < count; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%w after %d of %d messages", err, len(seen), count)
		}
		var gap error
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != next {
				gap = fmt.Errorf("offset %d follows %d", r.Offset, next-1)
			}
			next = r.Offset + 1
			if r.Offset == 7 {
				sample = fmt.Sprintf("partition %d, offset %d, key %s, %s", r.Partition, r.Offset, r.Key, r.Value)
			}
			seen[string(r.Value)] = true
		})
		if gap != nil {
			return gap
		}
	}
	report("Kafka", "replayed from offset 0", len(seen), began, sample)
	return nil
}

func report(protocol, what string, count int, began time.Time, sample string) {
	took := time.Since(began)
	fmt.Printf("%s  %6d readings %s\n       %.0f msg/s (%v)\n       e.g. %s\n", protocol, count, what,
		float64(count)/took.Seconds(), took.Round(time.Millisecond), sample)
}
