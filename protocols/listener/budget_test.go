package listener

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(10)
		begin := time.Now()
		for range 30 {
			time.Sleep(p.delay(time.Now()))
		}
		if took := time.Since(begin); took != 2*time.Second { // ten at once
			t.Errorf("30 connections in %v", took)
		}
		time.Sleep(time.Hour)
		begin = time.Now()
		for range 11 {
			time.Sleep(p.delay(time.Now()))
		}
		if took := time.Since(begin); took != time.Second/10 {
			t.Errorf("after a quiet hour 11 connections in %v", took)
		}
		if newPace(0).delay(time.Now()) != 0 {
			t.Error("no limit has a limit")
		}
	})
}

func TestClientOf(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7", "[::ffff:192.0.2.7]:1": "192.0.2.7", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::", "[::1]:1": "::1",
	} {
		if got := clientOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(in))); got.String() != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestAddressBudget: it counts those that have not logged in.
func TestAddressBudget(t *testing.T) {
	for name, opt := range map[string]Options{"plain": {}, "staged": {Proxy: &Proxy{Trusted: loopback}}} {
		t.Run(name, func(t *testing.T) {
			refused := make(chan error, 1)
			opt.Addresses = NewAddresses(1)
			opt.OnError = func(err error) { refused <- err }
			l := listen(t, opt)
			accepted := make(chan net.Conn)
			go func() {
				defer close(accepted)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					accepted <- c
				}
			}()
			open := func() net.Conn {
				c := dial(t, l)
				_, _ = io.WriteString(c, "hello") // may be refused
				return c
			}
			open()
			first := <-accepted
			open()
			if err := <-refused; !errors.Is(err, ErrAddressBudget) {
				t.Fatal(err)
			}
			Authenticated(first)
			Authenticated(first)
			open()
			second := <-accepted
			_ = second.Close() // without a login
			open()
			third := <-accepted
			_ = third.Close()
			_ = first.Close()
			if n, left := l.Stats().Open.Load(), len(opt.Addresses.open); n != 0 || left != 0 {
				t.Errorf("%d open, %d addresses", n, left)
			}
			_ = l.Close()
			<-accepted
		})
	}
}

// TestHandshakesAreBounded: in number, and the others are served.
func TestHandshakesAreBounded(t *testing.T) {
	refused := make(chan error, 8)
	budget := NewBudget(0)
	l := listen(t, Options{
		Proxy: &Proxy{Trusted: loopback, Required: true}, Budgets: []*Budget{budget}, MaxHandshakes: 2,
		OnError: func(err error) { refused <- err },
	})
	slow := []net.Conn{dial(t, l), dial(t, l), dial(t, l)}
	for _, c := range slow {
		_, _ = io.WriteString(c, "PRO")
	}
	if err := <-refused; !errors.Is(err, ErrHandshakes) {
		t.Errorf("refused: %v", err)
	}
	for _, c := range slow {
		_ = c.Close()
	}
	for range 2 {
		if err := <-refused; !errors.Is(err, ErrHandshake) {
			t.Errorf("refused: %v", err)
		}
	}
	c := dial(t, l)
	_, _ = io.WriteString(c, "PROXY UNKNOWN\r\n")
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
	dial(t, l) // who is in the midst of it when the listener closes
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if budget.Open() != 0 {
		t.Errorf("%d connections are left", budget.Open())
	}
}

// TestHandshakeTakesTooLong: who does not say who he is in time is cut off.
func TestHandshakeTakesTooLong(t *testing.T) {
	refused := make(chan error, 8)
	l := listen(t, Options{
		Proxy: &Proxy{Trusted: loopback, Required: true}, HandshakeTimeout: 50 * time.Millisecond,
		OnError: func(err error) { refused <- err },
	})
	c := dial(t, l)
	_, _ = io.WriteString(c, "PRO")
	if err := <-refused; !errors.Is(err, ErrHandshake) {
		t.Errorf("refused: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it is served")
	}
}
