package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// AMQP 0-9-1 frame types and the methods the client uses (class<<16 | method).
const (
	frameMethod, frameHeader, frameBody, frameHeartbeat = 1, 2, 3, 8

	connStart, connStartOK, connTune, connTuneOK = 10<<16 | 10, 10<<16 | 11, 10<<16 | 30, 10<<16 | 31
	connOpen, connOpenOK, connClose              = 10<<16 | 40, 10<<16 | 41, 10<<16 | 50
	chanOpen, chanOpenOK, chanClose              = 20<<16 | 10, 20<<16 | 11, 20<<16 | 40
	queueDeclare, queueDeclareOK                 = 50<<16 | 10, 50<<16 | 11
	queueBind, queueBindOK                       = 50<<16 | 20, 50<<16 | 21
	queueDelete, queueDeleteOK                   = 50<<16 | 40, 50<<16 | 41
	basicQos, basicQosOK                         = 60<<16 | 10, 60<<16 | 11
	basicConsume, basicConsumeOK                 = 60<<16 | 20, 60<<16 | 21
	basicPublish, basicDeliver                   = 60<<16 | 40, 60<<16 | 60
	basicAck, basicNack                          = 60<<16 | 80, 60<<16 | 120
	confirmSelect, confirmSelectOK               = 85<<16 | 10, 85<<16 | 11
)

// amqpClient is one connection with channel 1 open.
type amqpClient struct {
	conn net.Conn
	r    *bufio.Reader
	buf  []byte // frame payload, reused
}

func dialAMQP(addr, user, password string) (*amqpClient, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &amqpClient{conn: conn, r: bufio.NewReaderSize(conn, 256<<10)}
	if err := c.handshake(user, password); err != nil {
		conn.Close()
		return nil, fmt.Errorf("AMQP handshake: %w", err)
	}
	return c, nil
}

func (c *amqpClient) handshake(user, password string) error {
	if user == "" {
		user, password = "guest", "guest"
	}
	c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	defer c.conn.SetDeadline(time.Time{})
	if _, err := c.conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	if _, err := c.expect(connStart); err != nil {
		return err
	}
	args := binary.BigEndian.AppendUint32(nil, 0) // no client properties
	args = shortstr(args, "PLAIN")
	args = longstr(args, "\x00"+user+"\x00"+password)
	args = shortstr(args, "en_US")
	if err := c.send(0, connStartOK, args); err != nil {
		return err
	}
	tune, err := c.expect(connTune)
	if err != nil {
		return err
	}
	ok := append([]byte(nil), tune[:6]...) // the server's channel and frame limits, heartbeat off
	if err := c.send(0, connTuneOK, append(ok, 0, 0)); err != nil {
		return err
	}
	if _, err := c.call(0, connOpen, append(shortstr(nil, "/"), 0, 0), connOpenOK); err != nil {
		return err
	}
	_, err = c.call(1, chanOpen, []byte{0}, chanOpenOK)
	return err
}

func shortstr(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func longstr(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// appendMethod appends a method frame.
func appendMethod(b []byte, channel uint16, method uint32, args []byte) []byte {
	b = append(b, frameMethod)
	b = binary.BigEndian.AppendUint16(b, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(args)))
	b = binary.BigEndian.AppendUint16(b, uint16(method>>16))
	b = binary.BigEndian.AppendUint16(b, uint16(method))
	b = append(b, args...)
	return append(b, 0xCE)
}

func (c *amqpClient) send(channel uint16, method uint32, args []byte) error {
	_, err := c.conn.Write(appendMethod(nil, channel, method, args))
	return err
}

// frame reads the next frame that is no heartbeat. The payload is valid until
// the next call.
func (c *amqpClient) frame() (kind byte, payload []byte, err error) {
	for {
		head, err := c.r.Peek(7)
		if err != nil {
			return 0, nil, err
		}
		kind, size := head[0], int(binary.BigEndian.Uint32(head[3:]))
		c.r.Discard(7)
		if size+1 > 1<<24 {
			return 0, nil, fmt.Errorf("frame of %d bytes", size)
		}
		if cap(c.buf) < size+1 {
			c.buf = make([]byte, size+1)
		}
		c.buf = c.buf[:size+1]
		if _, err := io.ReadFull(c.r, c.buf); err != nil {
			return 0, nil, err
		}
		if kind != frameHeartbeat {
			return kind, c.buf[:size], nil
		}
	}
}

// expect reads frames until the given method and returns its arguments. A close
// from the server is an error.
func (c *amqpClient) expect(method uint32) ([]byte, error) {
	for {
		kind, p, err := c.frame()
		if err != nil {
			return nil, err
		}
		if kind != frameMethod || len(p) < 4 {
			continue
		}
		if err := closeError(p); err != nil {
			return nil, err
		}
		if binary.BigEndian.Uint32(p) == method {
			return p[4:], nil
		}
	}
}

// closeError returns the error a connection.close or channel.close carries.
func closeError(p []byte) error {
	m := binary.BigEndian.Uint32(p)
	if (m == connClose || m == chanClose) && len(p) > 7 {
		n := min(int(p[6]), len(p)-7)
		return fmt.Errorf("server closed: %d %s", binary.BigEndian.Uint16(p[4:]), p[7:7+n])
	}
	return nil
}

func (c *amqpClient) call(channel uint16, method uint32, args []byte, reply uint32) ([]byte, error) {
	if err := c.send(channel, method, args); err != nil {
		return nil, err
	}
	return c.expect(reply)
}

// remove deletes a queue; a missing one is no error.
func (c *amqpClient) remove(name string) error {
	args := append(shortstr([]byte{0, 0}, name), 0)
	_, err := c.call(1, queueDelete, args, queueDeleteOK)
	return err
}

// declare makes a durable queue anew.
func (c *amqpClient) declare(name, queueType string) error {
	if err := c.remove(name); err != nil {
		return err
	}
	args := append(shortstr([]byte{0, 0}, name), 0b00010) // durable
	var table []byte
	if queueType != "" {
		table = append(shortstr(nil, "x-queue-type"), 'S')
		table = longstr(table, queueType)
	}
	args = append(binary.BigEndian.AppendUint32(args, uint32(len(table))), table...)
	_, err := c.call(1, queueDeclare, args, queueDeclareOK)
	return err
}

func (c *amqpClient) bind(queue, exchange, key string) error {
	args := shortstr(shortstr(shortstr([]byte{0, 0}, queue), exchange), key)
	_, err := c.call(1, queueBind, append(args, 0, 0, 0, 0, 0), queueBindOK)
	return err
}

func (c *amqpClient) confirms() error {
	_, err := c.call(1, confirmSelect, []byte{0}, confirmSelectOK)
	return err
}

func (c *amqpClient) consume(queue string, prefetch int) error {
	qos := binary.BigEndian.AppendUint16([]byte{0, 0, 0, 0}, uint16(min(prefetch, 65535)))
	if _, err := c.call(1, basicQos, append(qos, 0), basicQosOK); err != nil {
		return err
	}
	args := append(shortstr(shortstr([]byte{0, 0}, queue), "bench"), 0, 0, 0, 0, 0)
	_, err := c.call(1, basicConsume, args, basicConsumeOK)
	return err
}

// publication is a pre-encoded persistent publish to the default exchange whose
// payload is overwritten for each message.
type publication struct {
	frames  []byte
	payload int // where the payload begins in frames
	size    int
}

func newPublication(queue string, size int) *publication {
	args := append(shortstr(shortstr([]byte{0, 0}, ""), queue), 0)
	f := appendMethod(nil, 1, basicPublish, args)
	f = append(f, frameHeader, 0, 1, 0, 0, 0, 15, 0, 60, 0, 0)
	f = binary.BigEndian.AppendUint64(f, uint64(size))
	f = append(f, 0x10, 0x00, 2, 0xCE) // delivery-mode 2
	f = append(f, frameBody, 0, 1)
	f = binary.BigEndian.AppendUint32(f, uint32(size))
	p := &publication{payload: len(f), size: size}
	p.frames = append(append(f, make([]byte, size)...), 0xCE)
	return p
}

// append appends the frames of one message.
func (p *publication) append(b []byte, publisher uint32, seq uint64) []byte {
	stamp(p.frames[p.payload:], publisher, seq, now())
	return append(b, p.frames...)
}

// readConfirms feeds acks to w until the connection ends.
func (c *amqpClient) readConfirms(w *window) error {
	for {
		kind, p, err := c.frame()
		if err != nil {
			return err
		}
		if kind != frameMethod || len(p) < 4 {
			continue
		}
		switch binary.BigEndian.Uint32(p) {
		case basicAck:
			w.confirm(binary.BigEndian.Uint64(p[4:])-1, p[12]&1 != 0)
		case basicNack:
			return errors.New("the broker refused a message (basic.nack)")
		default:
			if err := closeError(p); err != nil {
				return err
			}
		}
	}
}

// readDeliveries calls got for each delivery and acks when the input buffer is
// empty or every ackEvery messages. It ends when got returns false or the
// connection ends.
func (c *amqpClient) readDeliveries(ackEvery int, got func(payload []byte) (more bool, err error)) error {
	var tag uint64
	var body []byte
	var left, unacked int
	ack := func() error {
		if unacked == 0 {
			return nil
		}
		unacked = 0
		return c.send(1, basicAck, append(binary.BigEndian.AppendUint64(nil, tag), 1))
	}
	for {
		if unacked >= ackEvery || c.r.Buffered() == 0 {
			if err := ack(); err != nil {
				return err
			}
		}
		kind, p, err := c.frame()
		if err != nil {
			return err
		}
		switch kind {
		case frameMethod:
			if err := closeError(p); err != nil {
				return err
			}
			if binary.BigEndian.Uint32(p) == basicDeliver {
				at := 5 + int(p[4])
				tag = binary.BigEndian.Uint64(p[at:])
			}
			continue
		case frameHeader:
			left, body = int(binary.BigEndian.Uint64(p[4:])), body[:0]
		case frameBody:
			left -= len(p)
			body = append(body, p...)
		}
		if left > 0 {
			continue
		}
		unacked++
		more, err := got(body)
		if err != nil {
			return err
		}
		if !more {
			return ack()
		}
	}
}

func (c *amqpClient) close() { c.conn.Close() }
