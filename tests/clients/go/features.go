// What go-amqp does with a broker, each feature on a connection, a queue and a topic of its own. Argument: its URL.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	wait    = 10 * time.Second
	nothing = 100 * time.Millisecond
)

var other = regexp.MustCompile("[^a-z0-9]+")

// scene is a feature's connection, with what most features use. Its methods panic with what went wrong.
type scene struct {
	conn         *amqp.Conn
	session      *amqp.Session
	queue, topic string
}

func background() context.Context {
	bounded, cancel := context.WithTimeout(context.Background(), wait)
	time.AfterFunc(wait, cancel)
	return bounded
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Errorf("expected %#v, found %#v", expected, found))
	}
}

func open(name, url string) *scene {
	queue := "go-" + other.ReplaceAllString(name, "-")
	options := &amqp.ConnOptions{ContainerID: queue, SASLType: amqp.SASLTypeAnonymous()}
	conn, err := amqp.Dial(background(), url, options)
	must(err)
	session, err := conn.NewSession(background(), nil)
	must(err)
	return &scene{conn, session, queue, "topic://" + queue + "-news"}
}

func (s *scene) send(address string, messages ...*amqp.Message) {
	sender, err := s.session.NewSender(background(), address, nil)
	must(err)
	for _, each := range messages {
		must(sender.Send(background(), each, nil))
	}
	must(sender.Close(background()))
}

func (s *scene) receiver(address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	receiver, err := s.session.NewReceiver(background(), address, options)
	must(err)
	return receiver
}

// through sends a message, and returns it as it comes back.
func (s *scene) through(message *amqp.Message) *amqp.Message {
	s.send(s.queue, message)
	return take(s.receiver(s.queue, nil))
}

func value(body any) *amqp.Message { return &amqp.Message{Value: body} }

func next(receiver *amqp.Receiver) *amqp.Message {
	message, err := receiver.Receive(background(), nil)
	must(err)
	return message
}

func take(receiver *amqp.Receiver) *amqp.Message {
	message := next(receiver)
	must(receiver.AcceptMessage(background(), message))
	return message
}

// receives checks the bodies of the next messages, and that no further one comes.
func receives(receiver *amqp.Receiver, bodies ...any) {
	for _, each := range bodies {
		equal(take(receiver).Value, each)
	}
	short, cancel := context.WithTimeout(context.Background(), nothing)
	defer cancel()
	message, err := receiver.Receive(short, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		panic(fmt.Errorf("one message too many: %v, %v", message, err))
	}
}

type feature struct {
	name string
	run  func(s *scene)
}

var features = []feature{
	{"text message", func(s *scene) { equal(s.through(value("größe")).Value, "größe") }},
	{"bytes message", func(s *scene) {
		equal(s.through(amqp.NewMessage([]byte{1, 2, 3})).GetData(), []byte{1, 2, 3})
	}},
	{"map message", func(s *scene) {
		sent := map[string]any{"one": int64(1), "two": "2"}
		equal(s.through(value(sent)).Value, sent)
	}},
	{"list message", func(s *scene) {
		sent := []any{"one", int64(2), 0.5}
		equal(s.through(value(sent)).Value, sent)
	}},
	{"properties", func(s *scene) {
		sent := value("body")
		sent.ApplicationProperties = map[string]any{
			"boolean": true, "int": int32(3), "long": int64(4), "double": 0.25, "string": "größe",
		}
		equal(s.through(sent).ApplicationProperties, sent.ApplicationProperties)
	}},
	{"headers", func(s *scene) {
		subject, replies, contentType, group, sequence := "type", "replies", "text/plain", "group", uint32(7)
		sent := value("body")
		sent.Header = &amqp.MessageHeader{Durable: true, Priority: 4}
		sent.Properties = &amqp.MessageProperties{
			MessageID: "id", CorrelationID: "correlation", Subject: &subject, ReplyTo: &replies, To: &s.queue,
			ContentType: &contentType, GroupID: &group, GroupSequence: &sequence,
		}
		got := s.through(sent)
		equal(got.Properties, sent.Properties)
		equal(*got.Header, amqp.MessageHeader{Durable: true, Priority: 4, FirstAcquirer: true})
	}},
	{"priority", func(s *scene) {
		for _, priority := range []uint8{4, 9, 0} {
			message := value(int64(priority))
			message.Header = &amqp.MessageHeader{Priority: priority}
			s.send(s.queue, message)
		}
		receives(s.receiver(s.queue, nil), int64(9), int64(4), int64(0))
	}},
	{"time to live", func(s *scene) {
		short, long := value("short"), value("long")
		short.Header, long.Header = &amqp.MessageHeader{TTL: time.Millisecond}, &amqp.MessageHeader{TTL: time.Minute}
		s.send(s.queue, short)
		time.Sleep(20 * time.Millisecond)
		s.send(s.queue, long)
		receives(s.receiver(s.queue, nil), "long")
	}},
	{"10 MiB", func(s *scene) {
		large := bytes.Repeat([]byte{7}, 10*1024*1024)
		if !bytes.Equal(s.through(amqp.NewMessage(large)).GetData(), large) {
			panic(errors.New("the bytes are not the same"))
		}
	}},
	{"anonymous producer", func(s *scene) {
		subscriber := s.receiver(s.topic, nil)
		one, other := value("to a queue"), value("to a topic")
		one.Properties = &amqp.MessageProperties{To: &s.queue}
		other.Properties = &amqp.MessageProperties{To: &s.topic}
		s.send("", one, other)
		receives(s.receiver(s.queue, nil), "to a queue")
		receives(subscriber, "to a topic")
	}},
	{"delivery delay", func(s *scene) {
		message := value("later")
		message.Annotations = amqp.Annotations{"x-opt-delivery-delay": int64(300)}
		sent := time.Now()
		s.send(s.queue, message)
		take(s.receiver(s.queue, nil))
		if time.Since(sent) < 300*time.Millisecond {
			panic(errors.New("it came too soon"))
		}
	}},
	{"settled on sending", func(s *scene) {
		options := &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()}
		sender, err := s.session.NewSender(background(), s.queue, options)
		must(err)
		must(sender.Send(background(), value("sent"), nil))
		receives(s.receiver(s.queue, nil), "sent")
	}},
	{"settled on receiving", func(s *scene) {
		s.send(s.queue, value("one"))
		options := &amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}
		receiver := s.receiver(s.queue, options)
		equal(next(receiver).Value, "one")
		must(receiver.Close(background()))
		receives(s.receiver(s.queue, nil))
	}},
	{"receive without waiting", func(s *scene) {
		receiver := s.receiver(s.queue, &amqp.ReceiverOptions{Credit: -1})
		must(receiver.IssueCredit(10))
		must(receiver.DrainCredit(background(), nil))
		equal(receiver.Prefetched() == nil, true)
		s.send(s.queue, value("there"))
		must(receiver.IssueCredit(10))
		equal(take(receiver).Value, "there")
	}},
	{"prefetch 1000", func(s *scene) {
		var bodies []any
		for number := range 20 {
			bodies = append(bodies, int64(number))
			s.send(s.queue, value(int64(number)))
		}
		receives(s.receiver(s.queue, &amqp.ReceiverOptions{Credit: 1000}), bodies...)
	}},
	{"individual acknowledge", func(s *scene) {
		s.send(s.queue, value("one"), value("two"))
		receiver := s.receiver(s.queue, &amqp.ReceiverOptions{Credit: 10})
		next(receiver)
		take(receiver)
		must(receiver.Close(background()))
		receives(s.receiver(s.queue, nil), "one")
	}},
	{"release", func(s *scene) {
		s.send(s.queue, value("answered"))
		receiver := s.receiver(s.queue, nil)
		must(receiver.ReleaseMessage(background(), next(receiver)))
		equal(take(receiver).Header.DeliveryCount, uint32(0))
	}},
	{"modify", func(s *scene) {
		s.send(s.queue, value("answered"))
		receiver := s.receiver(s.queue, nil)
		must(receiver.ModifyMessage(background(), next(receiver), &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		equal(take(receiver).Header.DeliveryCount, uint32(1))
	}},
	{"reject", func(s *scene) {
		s.send(s.queue, value("answered"))
		receiver := s.receiver(s.queue, nil)
		why := &amqp.Error{Condition: amqp.ErrCondDecodeError, Description: "it cannot be read"}
		must(receiver.RejectMessage(background(), next(receiver), why))
		receives(receiver)
	}},
	{"topic", func(s *scene) {
		one, other := s.receiver(s.topic, nil), s.receiver(s.topic, nil)
		s.send(s.topic, value("news"))
		receives(one, "news")
		receives(other, "news")
	}},
	{"durable subscription", func(s *scene) {
		options := &amqp.ReceiverOptions{
			Name: "subscription", SourceDurability: amqp.DurabilityUnsettledState, SourceExpiryPolicy: amqp.ExpiryPolicyNever,
		}
		s.receiver(s.topic, options)
		must(s.conn.Close())
		again := open("durable subscription", os.Args[1])
		again.send(s.topic, value("while away"))
		receives(again.receiver(s.topic, options), "while away")
	}},
	{"selector", func(s *scene) {
		for _, region := range []string{"eu", "us"} {
			message := value(region)
			message.ApplicationProperties = map[string]any{"region": region}
			s.send(s.queue, message)
		}
		filters := []amqp.LinkFilter{amqp.NewSelectorFilter("region = 'us'")}
		receives(s.receiver(s.queue, &amqp.ReceiverOptions{Filters: filters}), "us")
		receives(s.receiver(s.queue, nil), "eu")
	}},
	{"browser", func(s *scene) {
		s.send(s.queue, value("one"), value("two"))
		browsing := &amqp.ReceiverOptions{SourceDistributionMode: amqp.SourceDistributionModeCopy}
		receives(s.receiver(s.queue, browsing), "one", "two")
		receives(s.receiver(s.queue, nil), "one", "two")
	}},
	{"temporary queue", func(s *scene) {
		receiver := s.receiver("", &amqp.ReceiverOptions{DynamicAddress: true})
		s.send(receiver.Address(), value("here"))
		receives(receiver, "here")
	}},
	{"request and reply", func(s *scene) {
		replies := s.receiver("", &amqp.ReceiverOptions{DynamicAddress: true})
		address := replies.Address()
		request := value("request")
		request.Properties = &amqp.MessageProperties{ReplyTo: &address}
		got := s.through(request)
		reply := value("reply")
		reply.Properties = &amqp.MessageProperties{To: got.Properties.ReplyTo}
		s.send("", reply)
		receives(replies, "reply")
	}},
}

// result runs a feature, and says "ok" or what went wrong.
func result(each feature, url string) (said string) {
	defer func() {
		if wrong := recover(); wrong != nil {
			said = strings.Join(strings.Fields(fmt.Sprint(wrong)), " ")
		}
	}()
	s := open(each.name, url)
	defer s.conn.Close()
	each.run(s)
	return "ok"
}

func main() {
	for _, each := range features {
		fmt.Printf("%s\t%s\n", each.name, result(each, os.Args[1]))
	}
}
