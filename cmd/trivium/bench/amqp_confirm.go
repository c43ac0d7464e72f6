package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// writeLimit bounds how many bytes a publisher hands to one write.
const writeLimit = 64 << 10

// amqpConfirm publishes persistent messages to a durable queue with confirms,
// then reads the queue empty to find lost and duplicate messages. Only the
// publishing is timed.
func amqpConfirm(ctx context.Context, o Options) (Result, error) {
	setup, err := dialAMQP(o.Target, o.User, o.Password)
	if err != nil {
		return Result{}, err
	}
	defer setup.close()
	if err := setup.declare(o.Name, o.QueueType); err != nil {
		return Result{}, err
	}
	var h histogram
	windows := make([]*window, o.Publishers)
	clients := make([]*amqpClient, o.Publishers)
	for i := range windows {
		windows[i] = newWindow(o.Outstanding, &h)
		if clients[i], err = dialAMQP(o.Target, o.User, o.Password); err != nil {
			return Result{}, err
		}
		defer clients[i].close()
		if err := clients[i].confirms(); err != nil {
			return Result{}, err
		}
	}
	cpu, start := startClock(o)
	err = parallel(ctx, o.Publishers, func(ctx context.Context, i int) error {
		p := newPublication(o.Name, o.Size)
		return publish(ctx, o, windows[i], clients[i].conn, func() error { return clients[i].readConfirms(windows[i]) },
			func(b []byte, seq uint64) []byte { return p.append(b, uint32(i), seq) })
	})
	elapsed, used, cerr := stopClock(o, cpu, start)
	if err = errors.Join(err, cerr); err != nil {
		return Result{}, err
	}
	res, confirmed := countWindows(windows)
	l := newLedger(o.Publishers)
	if err := drainQueue(ctx, o, l, res.Published); err != nil {
		return res, err
	}
	res.Received, res.Duplicates, res.Lost = l.result(confirmed)
	res.Checked = true
	res.finish(res.Confirmed, o, elapsed, &h, used)
	return res, setup.remove(o.Name)
}

// countWindows sums the publishers' windows up.
func countWindows(windows []*window) (res Result, confirmed []uint64) {
	for _, w := range windows {
		p, c := w.counts()
		res.Published += p
		res.Confirmed += c
		confirmed = append(confirmed, c)
	}
	return res, confirmed
}

// publish runs one publisher: it fills the window and writes messages in as few
// writes as the window allows, while read feeds the window with confirms. It
// returns when the time or count is up and everything sent is confirmed.
func publish(ctx context.Context, o Options, w *window, conn net.Conn, read func() error, encode func([]byte, uint64) []byte) error {
	run, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { w.close(read()) })
	defer wg.Wait()
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { w.close(ctx.Err()) })
	defer stop()

	pace, share := newPacer(o.Rate, o.Publishers), o.Messages/max(o.Publishers, 1)
	limit := max(writeLimit/(o.Size+64), 1)
	if o.Batch > 0 {
		limit = min(limit, o.Batch)
	}
	var buf []byte
	for sent := 0; share == 0 || sent < share; {
		n := limit
		if share > 0 {
			n = min(n, share-sent)
		}
		if n = pace.wait(run, n); n == 0 {
			break
		}
		for n > 0 {
			seq, took := w.take(n)
			if took == 0 {
				return fmt.Errorf("publisher stopped: %w", w.closed)
			}
			buf = buf[:0]
			for i := range took {
				buf = encode(buf, seq+uint64(i))
			}
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			n -= took
			sent += took
		}
	}
	return w.drain()
}

// drainQueue reads the queue until count different messages have arrived, or
// nothing has come for a few seconds.
func drainQueue(ctx context.Context, o Options, l *ledger, count uint64) error {
	if count == 0 {
		return nil
	}
	c, err := dialAMQP(o.Target, o.User, o.Password)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.consume(o.Name, 2000); err != nil {
		return err
	}
	var stop arrivals
	stop.want.Store(count)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		err = c.readDeliveries(500, func(p []byte) (bool, error) {
			pub, seq, _, err := parse(p)
			if err != nil {
				return false, err
			}
			return !stop.arrived(l.receive(pub, seq)), nil
		})
	}()
	awaitReader(ctx, &stop, finished, c.close)
	<-finished
	if errors.Is(err, net.ErrClosed) {
		return ctx.Err()
	}
	return err
}

// startClock notes the time and the broker's CPU time.
func startClock(o Options) (cpu time.Duration, start time.Time) {
	cpu, _ = cpuTime(o.PID)
	return cpu, time.Now()
}

// stopClock returns what has passed since startClock.
func stopClock(o Options, cpu time.Duration, start time.Time) (elapsed, used time.Duration, err error) {
	elapsed = time.Since(start)
	after, err := cpuTime(o.PID)
	return elapsed, after - cpu, err
}
