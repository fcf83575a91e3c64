import java.net.URI;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DistributionMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.types.UnsignedLong;

/** What ProtonJ2 does with a broker, each feature on a connection, a queue and a topic of its own. Argument: its URL. */
public final class ProtonFeatures {
    private static final int WAIT_MS = 10_000;
    private static final int NOTHING_MS = 100;

    private static URI url;

    /** A feature's connection, with what most of them use. */
    private static final class Scene implements AutoCloseable {
        final Client client;
        final Connection connection;
        final String queue;
        final String topic;

        Scene(String name) throws Exception {
            queue = "j2-" + name.replaceAll("[^a-z0-9]+", "-");
            topic = "topic://" + queue + "-news";
            client = Client.create(new ClientOptions().id(queue));
            connection = client.connect(url.getHost(), url.getPort(), new ConnectionOptions());
        }

        void send(Object... bodies) throws Exception {
            for (Object body : bodies) {
                send(queue, Message.create(body));
            }
        }

        void send(String address, Message<?> message) throws Exception {
            try (Sender sender = connection.openSender(address)) {
                sender.send(message).awaitAccepted(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }

        Receiver receiver() throws Exception {
            return connection.openReceiver(queue);
        }

        /** A subscriber that the broker has confirmed: it gets what is sent from now on. */
        Receiver subscriber() throws Exception {
            return connection.openReceiver(topic).openFuture().get(WAIT_MS, TimeUnit.MILLISECONDS);
        }

        Receiver durable() throws Exception {
            return connection.openDurableReceiver(topic, "s").openFuture().get(WAIT_MS, TimeUnit.MILLISECONDS);
        }

        /** A receiver whose messages the feature answers by itself. */
        Receiver answering() throws Exception {
            return connection.openReceiver(queue, new ReceiverOptions().autoAccept(false).autoSettle(false));
        }

        /** Sends a message, and returns it as it comes back. */
        Message<Object> through(Message<?> message) throws Exception {
            send(queue, message);
            return next(receiver()).message();
        }

        @Override
        public void close() {
            connection.close();
            client.close();
        }
    }

    private interface Body {
        void run(Scene scene) throws Exception;
    }

    private static void feature(String name, Body body) {
        Checks.check(name, () -> {
            try (Scene scene = new Scene(name)) {
                body.run(scene);
            }
        });
    }

    private static Delivery next(Receiver receiver) throws Exception {
        Delivery found = receiver.receive(WAIT_MS, TimeUnit.MILLISECONDS);
        Checks.that(found != null, "a message comes");
        return found;
    }

    /** The bodies of the next messages, and that no further one comes. */
    private static void receives(Receiver receiver, Object... bodies) throws Exception {
        for (Object each : bodies) {
            Checks.equal(next(receiver).message().body(), each);
        }
        Checks.equal(receiver.receive(NOTHING_MS, TimeUnit.MILLISECONDS), null);
    }

    public static void main(String[] arguments) {
        url = URI.create(arguments[0]);
        messages();
        receiving();
        transactions();
        sources();
    }

    private static void messages() {
        feature("text message", s -> Checks.equal(s.through(Message.create("größe")).body(), "größe"));
        feature("bytes message", s -> {
            Object got = s.through(Message.create(new byte[] {1, 2, 3})).body();
            Checks.that(Arrays.equals((byte[]) got, new byte[] {1, 2, 3}), "the bytes are the same");
        });
        feature("map message", s -> {
            Map<String, Object> map = Map.of("one", 1, "two", "2");
            Checks.equal(s.through(Message.create(map)).body(), map);
        });
        feature("list message", s -> {
            List<Object> list = List.of("one", 2L, 0.5);
            Checks.equal(s.through(Message.create(list)).body(), list);
        });
        feature("properties", s -> {
            Map<String, Object> all = Map.of("boolean", true, "int", 3, "long", 4L, "double", 0.25, "string", "größe");
            Message<String> sent = Message.create("body");
            for (Map.Entry<String, Object> each : all.entrySet()) {
                sent.property(each.getKey(), each.getValue());
            }
            Message<Object> got = s.through(sent);
            for (Map.Entry<String, Object> each : all.entrySet()) {
                Checks.equal(got.property(each.getKey()), each.getValue());
            }
        });
        feature("headers", s -> {
            Message<String> sent = Message.create("body");
            sent.messageId("id").correlationId("correlation").subject("type").replyTo("replies").to(s.queue);
            sent.contentType("text/plain").groupId("group").groupSequence(7).durable(true);
            Message<Object> got = s.through(sent);
            Checks.equal(got.messageId(), "id");
            Checks.equal(got.correlationId(), "correlation");
            Checks.equal(got.subject(), "type");
            Checks.equal(got.replyTo(), "replies");
            Checks.equal(got.to(), s.queue);
            Checks.equal(got.contentType(), "text/plain");
            Checks.equal(got.groupId(), "group");
            Checks.equal(got.groupSequence(), 7);
            Checks.equal(got.durable(), true);
            Checks.equal(got.firstAcquirer(), true);
            Checks.equal(got.deliveryCount(), 0L);
        });
        feature("priority", s -> {
            for (int priority : new int[] {4, 9, 0}) {
                s.send(s.queue, Message.create("priority " + priority).priority((byte) priority));
            }
            receives(s.receiver(), "priority 9", "priority 4", "priority 0");
        });
        feature("time to live", s -> {
            s.send(s.queue, Message.create("short").timeToLive(1));
            Thread.sleep(20);
            s.send(s.queue, Message.create("long").timeToLive(60_000));
            receives(s.receiver(), "long");
        });
        feature("10 MiB", s -> {
            byte[] large = new byte[10 * 1024 * 1024];
            Arrays.fill(large, (byte) 7);
            Checks.that(Arrays.equals((byte[]) s.through(Message.create(large)).body(), large), "the bytes are the same");
        });
        feature("anonymous producer", s -> {
            Receiver subscriber = s.subscriber();
            try (Sender anonymous = s.connection.openAnonymousSender()) {
                anonymous.send(Message.create("to a queue").to(s.queue)).awaitAccepted();
                anonymous.send(Message.create("to a topic").to(s.topic)).awaitAccepted();
            }
            receives(s.receiver(), "to a queue");
            receives(subscriber, "to a topic");
        });
        feature("delivery delay", s -> {
            long sent = System.currentTimeMillis();
            s.send(s.queue, Message.create("later").annotation("x-opt-delivery-delay", 300L));
            Checks.equal(next(s.receiver()).message().body(), "later");
            Checks.that(System.currentTimeMillis() - sent >= 300, "it came 300 ms later");
        });
        feature("settled on sending", s -> {
            SenderOptions settled = new SenderOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE);
            s.connection.openSender(s.queue, settled).send(Message.create("sent")).awaitSettlement();
            receives(s.receiver(), "sent");
        });
    }

    private static void receiving() {
        feature("settled on receiving", s -> {
            s.send("one", "two");
            ReceiverOptions settled = new ReceiverOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE);
            Receiver receiver = s.connection.openReceiver(s.queue, settled);
            receives(receiver, "one", "two");
            receiver.close();
            receives(s.receiver());
        });
        feature("receive without waiting", s -> {
            Receiver receiver = s.connection.openReceiver(s.queue, new ReceiverOptions().creditWindow(0));
            receiver.addCredit(10);
            receiver.drain().get(WAIT_MS, TimeUnit.MILLISECONDS);
            Checks.equal(receiver.tryReceive(), null);
            s.send("there");
            receiver.addCredit(10);
            receiver.drain().get(WAIT_MS, TimeUnit.MILLISECONDS);
            Checks.equal(receiver.tryReceive().message().body(), "there");
        });
        feature("prefetch 1000", s -> {
            Object[] bodies = new Object[20];
            Arrays.setAll(bodies, number -> "message " + number);
            s.send(bodies);
            receives(s.connection.openReceiver(s.queue, new ReceiverOptions().creditWindow(1000)), bodies);
        });
        feature("individual acknowledge", s -> {
            s.send("one", "two");
            Receiver receiver = s.answering();
            next(receiver);
            next(receiver).accept();
            receiver.close();
            receives(s.receiver(), "one");
        });
        feature("release", s -> {
            s.send("answered");
            Receiver receiver = s.answering();
            next(receiver).release();
            Checks.equal(next(receiver).message().deliveryCount(), 0L);
        });
        feature("modify", s -> {
            s.send("answered");
            Receiver receiver = s.answering();
            next(receiver).modified(true, false);
            Checks.equal(next(receiver).message().deliveryCount(), 1L);
        });
        feature("reject", s -> {
            s.send("answered");
            Receiver receiver = s.answering();
            next(receiver).reject("amqp:decode-error", "it cannot be read");
            Checks.equal(receiver.receive(NOTHING_MS, TimeUnit.MILLISECONDS), null);
        });
    }

    private static void transactions() {
        feature("commit", s -> {
            Session session = s.connection.openSession();
            session.beginTransaction();
            session.openSender(s.queue).send(Message.create("one")).awaitSettlement();
            Receiver receiver = s.receiver();
            receives(receiver);
            session.commitTransaction();
            receives(receiver, "one");
        });
        feature("rollback", s -> {
            Session session = s.connection.openSession();
            session.beginTransaction();
            session.openSender(s.queue).send(Message.create("never")).awaitSettlement();
            session.rollbackTransaction();
            s.send("once");
            session.beginTransaction();
            Receiver receiver = session.openReceiver(s.queue);
            Checks.equal(next(receiver).message().deliveryCount(), 0L);
            session.rollbackTransaction();
            Message<Object> again = next(receiver).message();
            Checks.equal(again.body(), "once");
            Checks.equal(again.deliveryCount(), 1L);
        });
        feature("transaction over two queues", s -> {
            s.send("from here");
            Session session = s.connection.openSession();
            session.beginTransaction();
            Receiver receiver = session.openReceiver(s.queue);
            session.openSender(s.queue + "-there").send(next(receiver).message()).awaitSettlement();
            session.commitTransaction();
            receives(s.connection.openReceiver(s.queue + "-there"), "from here");
            receives(receiver);
        });
    }

    private static void sources() {
        feature("topic", s -> {
            Receiver one = s.subscriber();
            Receiver other = s.subscriber();
            s.send(s.topic, Message.create("news"));
            receives(one, "news");
            receives(other, "news");
        });
        feature("durable subscription", s -> {
            s.durable().detach();
            s.send(s.topic, Message.create("while away"));
            receives(s.durable(), "while away");
        });
        feature("unsubscribe", s -> {
            s.durable().close();
            s.send(s.topic, Message.create("while away"));
            receives(s.durable());
        });
        feature("selector", s -> {
            for (String region : List.of("eu", "us")) {
                s.send(s.queue, Message.create(region).property("region", region));
            }
            ReceiverOptions selecting = new ReceiverOptions();
            selecting.sourceOptions().addFilter("selector", UnsignedLong.valueOf(0x0000468C00000004L), "region = 'us'");
            receives(s.connection.openReceiver(s.queue, selecting), "us");
            receives(s.receiver(), "eu");
        });
        feature("browser", s -> {
            s.send("one", "two");
            ReceiverOptions browsing = new ReceiverOptions();
            browsing.sourceOptions().distributionMode(DistributionMode.COPY);
            receives(s.connection.openReceiver(s.queue, browsing), "one", "two");
            receives(s.receiver(), "one", "two");
        });
        feature("temporary queue", s -> {
            Receiver receiver = s.connection.openDynamicReceiver();
            s.send(receiver.address(), Message.create("here"));
            receives(receiver, "here");
        });
        feature("request and reply", s -> {
            Receiver replies = s.connection.openDynamicReceiver();
            Message<Object> got = s.through(Message.create("request").replyTo(replies.address()));
            try (Sender anonymous = s.connection.openAnonymousSender()) {
                anonymous.send(Message.create("reply").to(got.replyTo())).awaitAccepted();
            }
            receives(replies, "reply");
        });
    }

    private ProtonFeatures() {}
}
