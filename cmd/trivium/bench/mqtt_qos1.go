package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// mqttQoS1 publishes at QoS 1 to one topic that a durable QoS 1 subscription
// reads. The run ends when everything has been received; latency is from send
// to PUBACK.
func mqttQoS1(ctx context.Context, o Options) (Result, error) {
	o.Outstanding = min(o.Outstanding, packetIDs-1)
	id := "bench-sub-" + o.Name
	if err := forget(o, id); err != nil {
		return Result{}, err
	}
	sub, err := dialMQTT(o.Target, id, o.User, o.Password, false)
	if err != nil {
		return Result{}, err
	}
	defer sub.close()
	if err := sub.subscribe(o.Name, 1); err != nil {
		return Result{}, err
	}
	l := newLedger(o.Publishers)
	res, err := publishMQTT(ctx, o, o.Target, l, nil, func(stop *arrivals) error {
		return sub.readPublishes(func(p []byte) (bool, error) {
			pub, seq, _, err := parse(p)
			if err != nil {
				return false, err
			}
			return !stop.arrived(l.receive(pub, seq)), nil
		})
	}, sub.close)
	sub.close()
	return res, errors.Join(err, forget(o, id))
}

// forget discards a durable session.
func forget(o Options, id string) error {
	c, err := dialMQTT(o.Target, id, o.User, o.Password, true)
	if err != nil {
		return err
	}
	_, err = c.conn.Write([]byte{0xE0, 0})
	c.close()
	return err
}

// arrivals tells a reader when everything has arrived: want is set once the
// publishers are done.
type arrivals struct {
	want atomic.Uint64 // 0 = not known yet
	last atomic.Int64
}

func (a *arrivals) arrived(total uint64) bool {
	a.last.Store(now())
	want := a.want.Load()
	return want > 0 && total >= want
}

// publishMQTT runs the MQTT publishers beside one reader and measures until the
// reader has everything. latency, if given, replaces the PUBACK latency. hangUp
// ends the reader's connection.
func publishMQTT(ctx context.Context, o Options, target string, l *ledger, latency *histogram, read func(*arrivals) error, hangUp func()) (Result, error) {
	var h histogram
	windows := make([]*window, o.Publishers)
	clients := make([]*mqttClient, o.Publishers)
	for i := range windows {
		var err error
		windows[i] = newWindow(o.Outstanding, &h)
		if clients[i], err = dialMQTT(target, fmt.Sprintf("bench-pub-%d", i), o.User, o.Password, true); err != nil {
			return Result{}, err
		}
		defer clients[i].close()
	}
	var stop arrivals
	var readErr error
	var reading sync.WaitGroup
	finished := make(chan struct{})
	cpu, start := startClock(o)
	reading.Go(func() { defer close(finished); readErr = read(&stop) })
	err := parallel(ctx, o.Publishers, func(ctx context.Context, i int) error {
		p := newMQTTPublication(o.Name, o.Size)
		return publish(ctx, o, windows[i], clients[i].conn, func() error { return clients[i].readPubacks(windows[i]) },
			func(b []byte, seq uint64) []byte { return p.append(b, uint32(i), seq) })
	})
	res, confirmed := countWindows(windows)
	stop.want.Store(max(res.Confirmed, 1))
	if err != nil || l.total() >= res.Confirmed {
		hangUp()
	}
	awaitReader(ctx, &stop, finished, hangUp)
	reading.Wait()
	elapsed, used, cerr := stopClock(o, cpu, start)
	if errors.Is(readErr, net.ErrClosed) {
		readErr = nil
	}
	res.Received, res.Duplicates, res.Lost = l.result(confirmed)
	res.Checked = true
	if latency == nil {
		latency = &h
	}
	res.finish(min(res.Received, res.Confirmed), o, elapsed, latency, used)
	return res, errors.Join(err, readErr, cerr)
}

// awaitReader waits for the reader, and hangs up when nothing has arrived for
// five seconds.
func awaitReader(ctx context.Context, stop *arrivals, finished <-chan struct{}, hangUp func()) {
	stop.last.Store(now())
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			return
		case <-ctx.Done():
			hangUp()
			return
		case <-tick.C:
			if now()-stop.last.Load() > int64(5*time.Second) {
				hangUp()
				return
			}
		}
	}
}
