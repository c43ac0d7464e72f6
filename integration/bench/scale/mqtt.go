package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// mqttConn is one MQTT 3.1.1 connection, with as little around it as there can be.
type mqttConn struct {
	net.Conn
	r   *bufio.Reader
	buf []byte
	id  uint16
}

func str(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func packet(b []byte, first byte, body []byte) []byte {
	return append(binary.AppendUvarint(append(b, first), uint64(len(body))), body...)
}

// dialMQTT connects. small takes little memory on this side.
func dialMQTT(addr, client string, clean, small bool) (*mqttConn, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	size := 256 << 10
	if small {
		size = 16
	}
	m := &mqttConn{Conn: c, r: bufio.NewReaderSize(c, size)}
	flags := byte(0)
	if clean {
		flags = 2
	}
	body := append(str(nil, "MQTT"), 4, flags, 0, 0)
	if _, err := c.Write(packet(nil, 0x10, str(body, client))); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	kind, p, err := m.read()
	if err == nil && (kind != 0x20 || len(p) < 2 || p[1] != 0) {
		err = fmt.Errorf("CONNACK: % x %x", p, kind)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return m, nil
}

// read reads a packet, whose body is valid until the next call.
func (m *mqttConn) read() (kind byte, body []byte, err error) {
	if kind, err = m.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(m.r)
	if err != nil {
		return 0, nil, err
	}
	if uint64(cap(m.buf)) < n {
		m.buf = make([]byte, n)
	}
	m.buf = m.buf[:n]
	_, err = io.ReadFull(m.r, m.buf)
	return kind, m.buf, err
}

// subscribe subscribes at QoS 1.
func (m *mqttConn) subscribe(filters ...string) error {
	m.id++
	body := binary.BigEndian.AppendUint16(nil, m.id)
	for _, f := range filters {
		body = append(str(body, f), 1)
	}
	if _, err := m.Write(packet(nil, 0x82, body)); err != nil {
		return err
	}
	kind, _, err := m.read()
	if err == nil && kind != 0x90 {
		err = fmt.Errorf("no SUBACK but %x", kind)
	}
	return err
}

// publish sends n messages at QoS 1, some hundreds at a time, and waits for their
// PUBACKs. It returns how long the slowest lot took.
func (m *mqttConn) publish(n int, retain bool, message func(i int) (topic string, payload []byte)) (slowest time.Duration, err error) {
	const lot = 1000
	first := byte(0x32)
	if retain {
		first |= 1
	}
	var out, body []byte
	for at := 0; at < n; {
		k := min(lot, n-at)
		out = out[:0]
		for i := range k {
			topic, payload := message(at + i)
			m.id = m.id%60000 + 1
			body = binary.BigEndian.AppendUint16(str(body[:0], topic), m.id)
			out = packet(out, first, append(body, payload...))
		}
		begin := time.Now()
		if _, err := m.Write(out); err != nil {
			return 0, err
		}
		for range k {
			kind, _, err := m.read()
			if err != nil {
				return 0, err
			}
			if kind != 0x40 {
				return 0, fmt.Errorf("no PUBACK but %x", kind)
			}
		}
		slowest = max(slowest, time.Since(begin))
		at += k
	}
	return slowest, nil
}

// drain reads n publishes and acknowledges them.
func (m *mqttConn) drain(n int) error {
	var acks []byte
	for range n {
		kind, p, err := m.read()
		if err != nil {
			return err
		}
		if kind&0xF0 != 0x30 {
			return fmt.Errorf("no PUBLISH but %x", kind)
		}
		at := 2 + int(binary.BigEndian.Uint16(p))
		acks = append(acks, 0x40, 2, p[at], p[at+1])
		if m.r.Buffered() > 0 && len(acks) < 4*500 {
			continue
		}
		if _, err := m.Write(acks); err != nil {
			return err
		}
		acks = acks[:0]
	}
	if len(acks) > 0 {
		_, err := m.Write(acks)
		return err
	}
	return nil
}
