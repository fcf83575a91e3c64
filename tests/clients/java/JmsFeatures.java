import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What Qpid JMS does with a broker, each feature on a connection, a queue and a topic of its own. Arguments: its URL, this client's name. */
public final class JmsFeatures {
    private static final int WAIT_MS = 10_000;
    private static final int SOON_MS = 1_000;
    private static final int NOTHING_MS = 100;
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    private static String url;
    private static String client;

    /** A feature's connection, with what most of them use. */
    private static final class Scene implements AutoCloseable {
        final String name;
        final Connection connection;
        final Session session;
        final Queue queue;
        final Topic topic;
        final MessageProducer sender;

        Scene(String name, int mode, String options) throws JMSException {
            this.name = name.replaceAll("[^a-z0-9]+", "-");
            connection = new JmsConnectionFactory(url + options).createConnection();
            connection.setClientID(client + " " + this.name);
            connection.start();
            session = session(mode);
            queue = session.createQueue(client + "-" + this.name);
            topic = session.createTopic(client + "-topic-" + this.name);
            sender = session.createProducer(queue);
        }

        Session session(int mode) throws JMSException {
            return connection.createSession(mode == Session.SESSION_TRANSACTED, mode);
        }

        void send(String... texts) throws JMSException {
            for (String text : texts) {
                sender.send(session.createTextMessage(text));
            }
        }

        void publish(String... texts) throws JMSException {
            MessageProducer publisher = session.createProducer(topic);
            for (String text : texts) {
                publisher.send(session.createTextMessage(text));
            }
            publisher.close();
        }

        MessageConsumer receiver() throws JMSException {
            return session.createConsumer(queue);
        }

        /** Sends a message, and returns it as it comes back. */
        Message through(Message message) throws JMSException {
            sender.send(message);
            Message back = receiver().receive(WAIT_MS);
            Checks.that(back != null, "the message comes");
            return back;
        }

        @Override
        public void close() throws JMSException {
            connection.close();
        }
    }

    private interface Body {
        void run(Scene scene) throws Exception;
    }

    private static void feature(String name, Body body) {
        feature(name, Session.AUTO_ACKNOWLEDGE, "", body);
    }

    private static void feature(String name, int mode, String options, Body body) {
        Checks.check(name, () -> {
            try (Scene scene = new Scene(name, mode, options)) {
                body.run(scene);
            }
        });
    }

    private static String text(Message message) throws JMSException {
        return message == null ? null : ((TextMessage) message).getText();
    }

    /** The texts of the next messages, and that no further one comes. */
    private static void receives(MessageConsumer consumer, String... texts) throws JMSException {
        for (String each : texts) {
            Checks.equal(text(consumer.receive(WAIT_MS)), each);
        }
        Checks.equal(text(consumer.receive(NOTHING_MS)), null);
    }

    public static void main(String[] arguments) {
        url = arguments[0];
        client = arguments[1];
        messages();
        sending();
        receiving();
        acknowledging();
        transactions();
        topics();
        selecting();
        temporary();
    }

    private static void messages() {
        feature("text message", s -> Checks.equal(text(s.through(s.session.createTextMessage("größe"))), "größe"));
        feature("bytes message", s -> {
            BytesMessage sent = s.session.createBytesMessage();
            sent.writeBytes(new byte[] {1, 2, 3});
            sent.writeLong(9);
            BytesMessage got = (BytesMessage) s.through(sent);
            Checks.equal(got.getBodyLength(), 11L);
            byte[] three = new byte[3];
            got.readBytes(three);
            Checks.that(Arrays.equals(three, new byte[] {1, 2, 3}), "the bytes are the same");
            Checks.equal(got.readLong(), 9L);
        });
        feature("map message", s -> {
            MapMessage sent = s.session.createMapMessage();
            sent.setInt("one", 1);
            sent.setString("two", "2");
            sent.setBytes("three", new byte[] {3});
            MapMessage got = (MapMessage) s.through(sent);
            Checks.equal(got.getInt("one"), 1);
            Checks.equal(got.getString("two"), "2");
            Checks.equal(got.getBytes("three")[0], (byte) 3);
        });
        feature("list message", s -> {
            StreamMessage sent = s.session.createStreamMessage();
            sent.writeString("one");
            sent.writeLong(2);
            sent.writeDouble(0.5);
            StreamMessage got = (StreamMessage) s.through(sent);
            Checks.equal(got.readString(), "one");
            Checks.equal(got.readLong(), 2L);
            Checks.equal(got.readDouble(), 0.5);
        });
        feature("object message", Session.AUTO_ACKNOWLEDGE, "?jms.deserializationPolicy.allowList=*", s -> {
            ArrayList<String> object = new ArrayList<>(List.of("one", "two"));
            Checks.equal(((ObjectMessage) s.through(s.session.createObjectMessage(object))).getObject(), object);
        });
        feature("message without a body", s -> {
            Message sent = s.session.createMessage();
            sent.setStringProperty("only", "this");
            Message got = s.through(sent);
            Checks.that(!(got instanceof TextMessage) && !(got instanceof BytesMessage), "it has no body");
            Checks.equal(got.getStringProperty("only"), "this");
        });
        feature("properties", s -> {
            Message sent = s.session.createMessage();
            sent.setBooleanProperty("boolean", true);
            sent.setByteProperty("byte", (byte) 1);
            sent.setShortProperty("short", (short) 2);
            sent.setIntProperty("int", 3);
            sent.setLongProperty("long", 4);
            sent.setFloatProperty("float", 0.5f);
            sent.setDoubleProperty("double", 0.25);
            sent.setStringProperty("string", "größe");
            Message got = s.through(sent);
            for (Object name : Collections.list(sent.getPropertyNames())) {
                Checks.equal(got.getObjectProperty((String) name), sent.getObjectProperty((String) name));
            }
        });
        feature("headers", s -> {
            Message sent = s.session.createMessage();
            sent.setJMSCorrelationID("correlation");
            sent.setJMSType("type");
            sent.setJMSReplyTo(s.topic);
            Message got = s.through(sent);
            Checks.equal(got.getJMSCorrelationID(), "correlation");
            Checks.equal(got.getJMSType(), "type");
            Checks.equal(got.getJMSReplyTo(), s.topic);
            Checks.equal(got.getJMSDestination(), s.queue);
            Checks.equal(got.getJMSMessageID(), sent.getJMSMessageID());
            Checks.equal(got.getJMSTimestamp(), sent.getJMSTimestamp());
            Checks.equal(got.getJMSDeliveryMode(), DeliveryMode.PERSISTENT);
            Checks.equal(got.getJMSPriority(), 4);
            Checks.equal(got.getJMSExpiration(), 0L);
            Checks.equal(got.getJMSRedelivered(), false);
            Checks.equal(got.getIntProperty("JMSXDeliveryCount"), 1);
        });
        feature("priority", s -> {
            for (int priority : new int[] {4, 9, 0}) {
                s.sender.setPriority(priority);
                s.send("priority " + priority);
            }
            receives(s.receiver(), "priority 9", "priority 4", "priority 0");
        });
        feature("time to live", s -> {
            s.sender.setTimeToLive(1);
            s.send("short");
            Thread.sleep(20);
            s.sender.setTimeToLive(60_000);
            s.send("long");
            MessageConsumer receiver = s.receiver();
            Message got = receiver.receive(WAIT_MS);
            Checks.equal(text(got), "long");
            Checks.that(got.getJMSExpiration() > System.currentTimeMillis(), "it expires later");
        });
        feature("10 MiB", s -> {
            byte[] large = new byte[10 * 1024 * 1024];
            Arrays.fill(large, (byte) 7);
            BytesMessage sent = s.session.createBytesMessage();
            sent.writeBytes(large);
            BytesMessage got = (BytesMessage) s.through(sent);
            byte[] back = new byte[large.length];
            Checks.equal(got.readBytes(back), large.length);
            Checks.that(Arrays.equals(back, large), "the bytes are the same");
        });
        feature("non-persistent", s -> {
            s.sender.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            s.send("quick");
            receives(s.receiver(), "quick");
        });
    }

    private static void sending() {
        feature("asynchronous send", s -> {
            int messages = 100;
            CountDownLatch completed = new CountDownLatch(messages);
            List<Exception> failed = Collections.synchronizedList(new ArrayList<>());
            CompletionListener listener = new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    completed.countDown();
                }

                @Override
                public void onException(Message message, Exception error) {
                    failed.add(error);
                }
            };
            for (int number = 0; number < messages; number++) {
                s.sender.send(s.session.createTextMessage("message " + number), listener);
            }
            Checks.that(completed.await(WAIT_MS, TimeUnit.MILLISECONDS), "all are completed");
            Checks.equal(failed, List.of());
        });
        feature("anonymous producer", s -> {
            MessageProducer anonymous = s.session.createProducer(null);
            anonymous.send(s.queue, s.session.createTextMessage("to a queue"));
            MessageConsumer subscriber = s.session.createConsumer(s.topic);
            anonymous.send(s.topic, s.session.createTextMessage("to a topic"));
            receives(s.receiver(), "to a queue");
            receives(subscriber, "to a topic");
        });
        feature("delivery delay", s -> {
            s.sender.setDeliveryDelay(300);
            long sent = System.currentTimeMillis();
            s.send("later");
            Checks.equal(text(s.receiver().receive(WAIT_MS)), "later");
            Checks.that(System.currentTimeMillis() - sent >= 300, "it came 300 ms later");
        });
    }

    private static void receiving() {
        feature("listener", s -> {
            LinkedBlockingQueue<Message> heard = new LinkedBlockingQueue<>();
            s.receiver().setMessageListener(heard::add);
            Session sending = s.session(Session.AUTO_ACKNOWLEDGE);
            sending.createProducer(s.queue).send(sending.createTextMessage("heard"));
            Checks.equal(text(heard.poll(WAIT_MS, TimeUnit.MILLISECONDS)), "heard");
        });
        feature("receive without waiting", s -> {
            MessageConsumer receiver = s.receiver();
            Checks.equal(receiver.receiveNoWait(), null);
            s.send("there");
            Checks.equal(text(receiver.receive(WAIT_MS)), "there");
            Checks.equal(receiver.receiveNoWait(), null);
        });
        for (int prefetch : new int[] {0, 1000}) {
            String name = "prefetch " + prefetch;
            feature(name, Session.AUTO_ACKNOWLEDGE, "?jms.prefetchPolicy.all=" + prefetch, s -> {
                String[] texts = new String[20];
                Arrays.setAll(texts, number -> "message " + number);
                s.send(texts);
                MessageConsumer first = s.receiver();
                Checks.equal(text(first.receive(WAIT_MS)), texts[0]);
                MessageConsumer second = s.receiver();
                Checks.equal(text(second.receive(prefetch == 0 ? WAIT_MS : NOTHING_MS)), prefetch == 0 ? texts[1] : null);
                second.close();
                receives(first, Arrays.copyOfRange(texts, prefetch == 0 ? 2 : 1, texts.length));
            });
        }
        feature("message groups", Session.AUTO_ACKNOWLEDGE, "?jms.prefetchPolicy.all=1", s -> {
            MessageConsumer one = s.receiver();
            MessageConsumer other = s.receiver();
            for (int number = 1; number <= 10; number++) {
                Message message = s.session.createTextMessage("message " + number);
                message.setStringProperty("JMSXGroupID", "group");
                message.setIntProperty("JMSXGroupSeq", number);
                s.sender.send(message);
            }
            boolean first = one.receive(NOTHING_MS) != null;
            boolean second = other.receive(NOTHING_MS) != null;
            Checks.that(first != second, "one consumer gets all messages of a group");
        });
    }

    private static void acknowledging() {
        feature("auto acknowledge", s -> {
            s.send("once");
            MessageConsumer receiver = s.receiver();
            Checks.equal(text(receiver.receive(WAIT_MS)), "once");
            s.session.close();
            Session again = s.session(Session.AUTO_ACKNOWLEDGE);
            receives(again.createConsumer(s.queue));
        });
        feature("client acknowledge", Session.CLIENT_ACKNOWLEDGE, "", s -> {
            s.send("one", "two", "three");
            MessageConsumer receiver = s.receiver();
            receiver.receive(WAIT_MS);
            receiver.receive(WAIT_MS).acknowledge();
            Checks.equal(text(receiver.receive(WAIT_MS)), "three");
            s.session.close();
            Session again = s.session(Session.AUTO_ACKNOWLEDGE);
            receives(again.createConsumer(s.queue), "three");
        });
        feature("dups-ok acknowledge", Session.DUPS_OK_ACKNOWLEDGE, "", s -> {
            s.send("one", "two");
            receives(s.receiver(), "one", "two");
        });
        feature("individual acknowledge", INDIVIDUAL_ACKNOWLEDGE, "", s -> {
            s.send("one", "two");
            MessageConsumer receiver = s.receiver();
            receiver.receive(WAIT_MS);
            receiver.receive(WAIT_MS).acknowledge();
            s.session.close();
            Session again = s.session(Session.AUTO_ACKNOWLEDGE);
            receives(again.createConsumer(s.queue), "one");
        });
        feature("recover", Session.CLIENT_ACKNOWLEDGE, "", s -> {
            s.send("again");
            MessageConsumer receiver = s.receiver();
            Checks.equal(receiver.receive(WAIT_MS).getJMSRedelivered(), false);
            s.session.recover();
            Message again = receiver.receive(WAIT_MS);
            Checks.equal(again.getJMSRedelivered(), true);
            Checks.equal(again.getIntProperty("JMSXDeliveryCount"), 2);
            again.acknowledge();
        });
        feature("release", INDIVIDUAL_ACKNOWLEDGE, "", s -> outcome(s, 3, 1));
        feature("modify", INDIVIDUAL_ACKNOWLEDGE, "", s -> outcome(s, 4, 2));
        feature("reject", INDIVIDUAL_ACKNOWLEDGE, "", s -> outcome(s, 2, 0));
    }

    /** A message is answered with one of Qpid's acknowledgement types, and comes back with that count, or not (0). */
    private static void outcome(Scene s, int type, int count) throws JMSException {
        s.send("answered");
        MessageConsumer receiver = s.receiver();
        Message got = receiver.receive(WAIT_MS);
        got.setIntProperty("JMS_AMQP_ACK_TYPE", type);
        got.acknowledge();
        Message back = receiver.receive(count == 0 ? NOTHING_MS : WAIT_MS);
        Checks.equal(back == null ? 0 : back.getIntProperty("JMSXDeliveryCount"), count);
    }

    private static void transactions() {
        feature("commit", Session.SESSION_TRANSACTED, "", s -> {
            s.send("one", "two");
            Session other = s.session(Session.AUTO_ACKNOWLEDGE);
            receives(other.createConsumer(s.queue));
            other.close();
            s.session.commit();
            MessageConsumer receiver = s.receiver();
            receives(receiver, "one", "two");
            s.session.commit();
            s.session.close();
            receives(s.session(Session.AUTO_ACKNOWLEDGE).createConsumer(s.queue));
        });
        feature("rollback", Session.SESSION_TRANSACTED, "", s -> {
            s.send("never");
            s.session.rollback();
            s.send("once");
            s.session.commit();
            MessageConsumer receiver = s.receiver();
            Checks.equal(receiver.receive(WAIT_MS).getJMSRedelivered(), false);
            s.session.rollback();
            Message again = receiver.receive(WAIT_MS);
            Checks.equal(text(again), "once");
            Checks.equal(again.getJMSRedelivered(), true);
            Checks.equal(again.getIntProperty("JMSXDeliveryCount"), 2);
            s.session.commit();
            receives(receiver);
        });
        feature("transaction over two queues", Session.SESSION_TRANSACTED, "", s -> {
            s.send("from here");
            s.session.commit();
            Queue there = s.session.createQueue(s.queue.getQueueName() + "-there");
            MessageConsumer receiver = s.receiver();
            MessageProducer further = s.session.createProducer(there);
            further.send(receiver.receive(WAIT_MS));
            s.session.commit();
            receives(s.session.createConsumer(there), "from here");
            receives(receiver);
        });
    }

    private static void topics() {
        feature("topic", s -> {
            MessageConsumer one = s.session.createConsumer(s.topic);
            MessageConsumer other = s.session.createConsumer(s.topic);
            s.publish("news");
            receives(one, "news");
            receives(other, "news");
        });
        feature("durable subscription", s -> {
            s.session.createDurableSubscriber(s.topic, s.name).close();
            s.publish("while away");
            MessageConsumer again = s.session.createDurableSubscriber(s.topic, s.name);
            receives(again, "while away");
        });
        feature("unsubscribe", s -> {
            s.session.createDurableSubscriber(s.topic, s.name).close();
            s.publish("while away");
            s.session.unsubscribe(s.name);
            receives(s.session.createDurableSubscriber(s.topic, s.name));
        });
        feature("shared subscription", Session.AUTO_ACKNOWLEDGE, "?jms.prefetchPolicy.all=1", s -> {
            MessageConsumer one = s.session.createSharedConsumer(s.topic, s.name);
            MessageConsumer other = s.session.createSharedConsumer(s.topic, s.name);
            s.publish("one", "two");
            Checks.that(one.receive(WAIT_MS) != null, "the first gets one");
            Checks.that(other.receive(WAIT_MS) != null, "the second gets one");
            receives(one);
            receives(other);
        });
        feature("shared durable subscription", s -> {
            s.session.createSharedDurableConsumer(s.topic, s.name).close();
            s.publish("one", "two");
            MessageConsumer one = s.session.createSharedDurableConsumer(s.topic, s.name);
            receives(one, "one", "two");
        });
    }

    private static void selecting() {
        feature("selector", s -> {
            for (String region : new String[] {"eu", "us"}) {
                Message message = s.session.createTextMessage(region);
                message.setStringProperty("region", region);
                s.sender.send(message);
            }
            receives(s.session.createConsumer(s.queue, "region = 'us'"), "us");
            receives(s.receiver(), "eu");
        });
        feature("browser", s -> {
            s.send("one", "two");
            QueueBrowser browser = s.session.createBrowser(s.queue);
            List<String> seen = new ArrayList<>();
            for (Object each : Collections.list(browser.getEnumeration())) {
                seen.add(text((Message) each));
            }
            browser.close();
            Checks.equal(seen, List.of("one", "two"));
            receives(s.receiver(), "one", "two");
        });
        feature("no-local", s -> {
            MessageConsumer others = s.session.createConsumer(s.topic, null, true);
            MessageConsumer all = s.session.createConsumer(s.topic);
            s.publish("own");
            receives(all, "own");
            receives(others);
        });
    }

    private static void temporary() {
        feature("temporary queue", s -> {
            TemporaryQueue temporary = s.session.createTemporaryQueue();
            MessageConsumer receiver = s.session.createConsumer(temporary);
            s.session.createProducer(temporary).send(s.session.createTextMessage("here"));
            receives(receiver, "here");
            receiver.close();
            temporary.delete();
        });
        feature("temporary topic", s -> {
            TemporaryTopic temporary = s.session.createTemporaryTopic();
            MessageConsumer one = s.session.createConsumer(temporary);
            MessageConsumer other = s.session.createConsumer(temporary);
            s.session.createProducer(temporary).send(s.session.createTextMessage("news"));
            Checks.equal(text(one.receive(SOON_MS)), "news");
            Checks.equal(text(other.receive(SOON_MS)), "news");
        });
        feature("request and reply", s -> {
            TemporaryQueue replies = s.session.createTemporaryQueue();
            MessageConsumer receiver = s.session.createConsumer(replies);
            Message request = s.session.createTextMessage("request");
            request.setJMSReplyTo(replies);
            Message got = s.through(request);
            s.session.createProducer(null).send(got.getJMSReplyTo(), s.session.createTextMessage("reply"));
            receives(receiver, "reply");
        });
        feature("client id of one connection", s -> {
            Connection other = new JmsConnectionFactory(url).createConnection();
            try {
                other.setClientID(s.connection.getClientID());
                other.start();
                throw new AssertionError("a second connection with the client id is accepted");
            } catch (InvalidClientIDException expected) {
                Checks.that(s.connection.getClientID() != null, "the first connection goes on");
            } finally {
                other.close();
            }
        });
    }

    private JmsFeatures() {}
}
